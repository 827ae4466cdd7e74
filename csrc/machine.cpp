#include "machine.hpp"
