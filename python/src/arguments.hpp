#pragma once

#include <utility>

#include "common.hpp"

namespace tenfold::python {

// Types of Python arguments. The string in each class is the type in the generated stub. nanobind
// does not check the arguments (is_any): the function that reads an argument checks it, and reports
// errors.

inline bool is_any(PyObject*) { return true; }

/// Read by path_from().
class PathArgument : public nb::object {
  NB_OBJECT(PathArgument, nb::object, "str | bytes | os.PathLike[str] | os.PathLike[bytes]", is_any)
};

/// Read by paths_from().
class PathsArgument : public nb::object {
  NB_OBJECT(PathsArgument, nb::object,
            "collections.abc.Sequence[str | bytes | os.PathLike[str] | os.PathLike[bytes]]", is_any)
};

/// Read by key_paths(): each tuple is a path of keys, or has a single glob or dotted name.
class KeysArgument : public nb::object {
  NB_OBJECT(KeysArgument, nb::object, "collections.abc.Iterable[tuple[str, ...]]", is_any)
};

/// A function that returns the new dotted name for an old dotted name.
class RenameArgument : public nb::object {
  NB_OBJECT(RenameArgument, nb::object, "collections.abc.Callable[[str], str]", is_any)
};

/// A function that is called with the bytes done, the total bytes (0: unknown) and a name for the
/// current work.
class ProgressArgument : public nb::object {
  NB_OBJECT(ProgressArgument, nb::object, "collections.abc.Callable[[int, int, str], object]",
            is_any)
};

/// Lengths, strides, offsets or row indices.
class IntsArgument : public nb::object {
  NB_OBJECT(IntsArgument, nb::object, "collections.abc.Sequence[int]", is_any)
};

class NamesArgument : public nb::object {
  NB_OBJECT(NamesArgument, nb::object, "collections.abc.Iterable[str]", is_any)
};

/// An object of any class, such as a torch tensor, a numpy array or a Python value.
class AnyObject : public nb::object {
 public:
  AnyObject(nb::object any) : nb::object(std::move(any)) {}
  NB_OBJECT(AnyObject, nb::object, "typing.Any", is_any)
};

}  // namespace tenfold::python
