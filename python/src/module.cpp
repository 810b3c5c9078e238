#include <exception>
#include <string>

#include "batch_out.hpp"
#include "call.hpp"
#include "common.hpp"
#include "mapped_dict.hpp"
#include "state_mapper.hpp"
#include "torch_api.hpp"

namespace tenfold::python {
namespace {

nb::object exception_for(ErrorCode code) {
  const auto own = [](const char* name) {
    return nb::object(nb::module_::import_("tenfold._errors").attr(name));
  };
  switch (code) {
    case ErrorCode::file_not_found:
      return nb::borrow(PyExc_FileNotFoundError);
    case ErrorCode::key_not_found:
      return own("KeyNotFoundError");
    case ErrorCode::corrupt:
      return own("CorruptFileError");
    case ErrorCode::unsupported:
      return own("UnsupportedError");
    case ErrorCode::invalid_argument:
      return nb::borrow(PyExc_ValueError);
    case ErrorCode::io:
      return nb::borrow(PyExc_OSError);
  }
  return nb::borrow(PyExc_RuntimeError);  // not reached: the compiler warns about a missing case
}

nb::object path_or_none(const std::string& path) {
  if (path.empty()) return nb::none();
  return nb::steal(
      PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}

nb::object exception_of(const Error& error, const nb::object& path) {
  const nb::object type = exception_for(error.code());
  if (error.code() != ErrorCode::io || error.system_errno() == 0) return type(text(error.what()));
  // The message omits the path, because OSError appends it. If OSError is called with an errno, it
  // creates the subclass for this errno, such as FileExistsError or PermissionError.
  return type(error.system_errno(), text(Error(error).path("").what()), path);
}

/// Translates tenfold::Error to Python exceptions; nanobind translates all others.
void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    const nb::object path = path_or_none(error.path());
    const nb::object raised = exception_of(error, path);
    // Attributes of the instance are pickled with the exception, even if its class is one of
    // Python's own.
    raised.attr("path") = path;
    raised.attr("part") = text_or_none(error.part());
    raised.attr("problem") = text_or_none(error.problem());
    raised.attr("expected") = text_or_none(error.expected());
    raised.attr("found") = text_or_none(error.found());
    raised.attr("remedy") = text_or_none(error.remedy());
    PyErr_SetObject(raised.type().ptr(), raised.ptr());
  }
}

}  // namespace
}  // namespace tenfold::python

NB_MODULE(_core, module) {
  namespace bindings = tenfold::python;
  // At exit, Python may release tensors in global variables only after this module. nanobind would
  // report them as leaks, which they are not.
  nb::set_leak_warnings(false);
  nb::register_exception_translator(bindings::translate);
  module.attr("__version__") = nb::str(std::string(tenfold::version()).c_str());
  bindings::collect_warnings();
  bindings::bind_framework(module);
  bindings::bind_node(module);
  bindings::bind_tree(module);
  bindings::bind_io(module);
  bindings::bind_flat_safetensors(module);
  bindings::bind_snapshot(module);
  bindings::bind_checkpoint(module);
  bindings::bind_sharded_writer(module);
  bindings::bind_memmap(module);
  bindings::bind_mapped_file(module);
  bindings::bind_dataset(module);
  bindings::bind_batch_loader(module);
  bindings::bind_sparse_matrix(module);
  bindings::bind_mapped_dict(module);
  bindings::bind_ingest_sources(module);
  bindings::bind_ingest(module);
  bindings::bind_text_stream(module);
  bindings::bind_state_mapper(module);
  bindings::bind_cli(module);
}
