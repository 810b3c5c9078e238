#pragma once

#include <string>

#include "array_out.hpp"
#include "common.hpp"

namespace tenfold::python {

/// One entry of a node: (object, mark). A tensor becomes an array, a JSON value a Python value, a
/// node a NodeHandle. The mark is "unbatched", the stack dimension of a NonTensorStack, or None.
nb::tuple get_entry(const NodeHandle& self, nb::str key, const std::string& mode, Tied& tied);

/// All entries of a node in one call: (dict of objects, dict of marks without those that are None).
nb::tuple fill(const NodeHandle& self, const std::string& mode, Tied& tied);

/// Converts the whole tree to the containers from which it was saved. `place`: as for ArrayMaker.
/// `wrap`: called with each TensorDict, tensorclass and lazy stack (a NodeHandle), and its path in
/// the tree (a tuple of keys); returns the object for it.
nb::object to_containers(const NodeHandle& self, const std::string& mode, Tied& tied,
                         nb::object place, nb::object wrap);

}  // namespace tenfold::python
