#pragma once
#include "../laptop_iterators.h"
