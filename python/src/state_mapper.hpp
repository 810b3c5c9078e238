#pragma once

#include "common.hpp"

namespace tenfold::python {

void bind_state_mapper(nb::module_& module);

}  // namespace tenfold::python
