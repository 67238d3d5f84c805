// Textures, surfaces and CUDA arrays. Included only for sources that name them: they cost build time.
#pragma once
#include "surface_functions.h"
#include "texture_fetch_functions.h"
#include "texture_references.h"
