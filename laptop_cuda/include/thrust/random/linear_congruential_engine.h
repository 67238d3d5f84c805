#pragma once
#include "../laptop_functions.h"
