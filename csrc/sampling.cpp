#include "sampling.hpp"
