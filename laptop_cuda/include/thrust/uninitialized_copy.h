#pragma once
#include "laptop_algorithms.h"
