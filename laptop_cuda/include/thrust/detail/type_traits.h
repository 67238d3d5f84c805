#pragma once
#include "../laptop_vectors.h"
