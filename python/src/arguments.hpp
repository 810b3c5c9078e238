#pragma once

#include <utility>

#include "common.hpp"

namespace tenfold::python {

// Objects of Python by what the generated stub calls their type. nanobind checks nothing of it: the
// function that reads the object does, and says what is wrong with it.

inline bool is_any(PyObject*) { return true; }

/// path_from() reads it.
class PathArgument : public nb::object {
  NB_OBJECT(PathArgument, nb::object, "str | bytes | os.PathLike[str] | os.PathLike[bytes]", is_any)
};

/// paths_from() reads it.
class PathsArgument : public nb::object {
  NB_OBJECT(PathsArgument, nb::object,
            "collections.abc.Sequence[str | bytes | os.PathLike[str] | os.PathLike[bytes]]", is_any)
};

/// key_paths() reads it: each a path, or one glob or dotted name.
class KeysArgument : public nb::object {
  NB_OBJECT(KeysArgument, nb::object, "collections.abc.Iterable[tuple[str, ...]]", is_any)
};

/// A function of an old key that gives the new one.
class RenameArgument : public nb::object {
  NB_OBJECT(RenameArgument, nb::object, "collections.abc.Callable[[str], str]", is_any)
};

/// Called with bytes done, bytes in all (0: unknown) and the name of what is at work.
class ProgressArgument : public nb::object {
  NB_OBJECT(ProgressArgument, nb::object, "collections.abc.Callable[[int, int, str], object]",
            is_any)
};

/// Lengths, or positions of rows.
class IntsArgument : public nb::object {
  NB_OBJECT(IntsArgument, nb::object, "collections.abc.Sequence[int]", is_any)
};

class NamesArgument : public nb::object {
  NB_OBJECT(NamesArgument, nb::object, "collections.abc.Iterable[str]", is_any)
};

/// What may be of any class: a tensor or array of torch or numpy, a value, rows.
class AnyObject : public nb::object {
 public:
  AnyObject(nb::object any) : nb::object(std::move(any)) {}
  NB_OBJECT(AnyObject, nb::object, "typing.Any", is_any)
};

}  // namespace tenfold::python
