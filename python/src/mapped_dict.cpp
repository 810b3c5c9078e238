#include "mapped_dict.hpp"
#include "arguments.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <tenfold/error.hpp>

#include "array_out.hpp"
#include "base/fail.hpp"
#include "batch_out.hpp"
#include "call.hpp"
#include "dict/handle.hpp"
#include "dict/spill.hpp"
#include "dict/walk.hpp"
#include "os/thread/helper_thread.hpp"
#include "python_objects.hpp"
#include "rows_in.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

/// Maximum number of missing keys that a KeyError names.
constexpr std::size_t kMaxNamed = 5;

[[noreturn]] void raise_key(nb::handle key) {
  // Create the exception object here. If PyErr_SetObject got the key, it would unpack a tuple to
  // several arguments, and None to no arguments.
  const nb::object error = nb::steal(call_with(PyExc_KeyError, key.ptr()));
  if (error.is_valid()) PyErr_SetObject(PyExc_KeyError, error.ptr());
  throw nb::python_error();
}

/// Converts an element of dtype bool, int64, uint64 or float64 to a Python bool, int or float.
/// Empty for other dtypes, whose elements the caller returns as arrays.
nb::object scalar_of(DType dtype, const std::byte* bytes) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, bytes, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::bool_:
      return nb::bool_(*bytes != std::byte{0});
    case DType::int64:
      return nb::int_(as(std::int64_t{}));
    case DType::uint64:
      return nb::int_(as(std::uint64_t{}));
    case DType::float64:
      return nb::float_(as(double{}));
    default:
      return {};
  }
}

class Dict {
 public:
  Dict(PathArgument path, const std::string& mode, AnyObject ragged, int framework)
      : dict_([&] {
          const Path source = path_from(path);
          const Mode how = mode_from(mode);
          return without_gil([&] { return MappedDict(source, how); });
        }()),
        framework_(static_cast<Framework>(framework)),
        type_(dict_.key_type()),
        form_(dict_.value_form()),
        maker_(dict_.schema(), std::move(ragged)) {
    const auto& columns = dict_.schema().columns();
    is_plain_row_ = form_ != DictValueForm::columns && !columns[0].has_ends() &&
                    !columns[0].nullable && nbytes_of(columns[0].dtype, columns[0].shape) > 0;
    if (is_plain_row_) contiguous_ = contiguous_strides(columns[0].shape);
  }

  MappedDict& dict() noexcept { return dict_; }
  std::string key_type() const { return to_string(type_); }
  const char* form() const {
    return form_ == DictValueForm::tensor   ? "tensor"
           : form_ == DictValueForm::scalar ? "scalar"
                                            : "columns";
  }

  bool contains(nb::handle key) { return find(key).row >= 0; }

  AnyObject item(nb::handle key) {
    const auto [state, row] = find(key);
    if (row < 0) raise_key(key);
    return value(*state, row);
  }

  AnyObject get(nb::handle key, AnyObject otherwise) {
    const auto [state, row] = find(key);
    return row < 0 ? otherwise : value(*state, row);
  }

  AnyObject get_many(nb::handle keys, bool raise) {
    os::start_helper();
    const KeysIn wanted(keys, type_);
    std::optional<Batch> values;
    std::vector<std::int64_t> rows;
    without_gil([&] {
      if (wanted.all_fit()) {
        FoundValues some = handle_of(dict_)->get_many(wanted.some());
        rows = std::move(some.found.rows);
        values = std::move(some.values);
      } else {
        FoundRows some = find_some(wanted);
        rows = wanted.rows_of_all(std::move(some.rows));
        const bool has_all = std::ranges::find(rows, -1) == rows.end();  // also true for no keys
        if (!raise || has_all) values = gather_found(*some.state->values, rows);
      }
    });
    if (raise && std::ranges::find(rows, -1) != rows.end()) raise_missing(wanted, rows);
    return nb::make_tuple(values_of(*values), mask_of(rows));
  }

  AnyObject rows(nb::handle keys) {
    os::start_helper();
    const KeysIn wanted(keys, type_);
    const auto rows = without_gil([&] { return wanted.rows_of_all(find_some(wanted).rows); });
    const FrameworkScope scope(framework_);
    return array_of(Tensor::from(std::span<const std::int64_t>(rows)), "rows");
  }

  DictWalk walk() {
    const auto handle = handle_of(dict_);
    auto begun = without_gil([&] { return handle->newest(); });
    return {std::move(begun), [handle](const DictKeys& keys) { return handle->find_many(keys); }};
  }

  /// Returns (keys, values) of the next block of an iteration. The values are None without
  /// `with_values`. At the end, there are no keys, and the values are None.
  nb::tuple walk_on(DictWalk& walk, bool with_values) {
    std::optional<Batch> values;
    const auto block = without_gil([&] {
      auto next = walk.next();
      if (with_values && !next.rows.empty()) values = gather(*next.state->values, next.rows, {});
      return next;
    });
    nb::list keys;
    for (const std::int64_t row : block.places) keys.append(key_object(walk.keys(), row));
    return nb::make_tuple(keys, values ? values_of(*values) : nb::none());
  }

  AnyObject ordered_rows() {
    const auto rows = without_gil([&] { return dict_.ordered_rows(); });
    const FrameworkScope scope(framework_);
    return array_of(Tensor::from(std::span<const std::int64_t>(rows)), "rows");
  }

  /// Writes items. `rows`: for each key, a row with its value. `begin`: the number of the first
  /// item in error messages. `kind`: "assign" calls assign(); "error" and "last" call extend() with
  /// `kind` as the option `duplicates`.
  void write(std::int64_t begin, nb::handle keys, nb::list rows, const std::string& kind) {
    const KeysIn wanted(keys, type_);
    const Batch values = values_from(rows, begin);
    without_gil([&] { put(wanted.some(), values, kind); });
  }

  /// Acquires the writer lock and returns spill files. spill_items() adds items to them, which may
  /// be larger than memory in total. write_spill() then writes all items in one step.
  DictSpill spill() {
    const auto state = without_gil([&] {
      auto current = handle_of(dict_)->state();
      handle_of(dict_)->begin_writing();
      return current;
    });
    return {type_, dict_.schema(), Path(state->keys.where.path).parent_path()};
  }
  void spill_items(DictSpill& spill, std::int64_t begin, nb::handle keys, nb::list rows) {
    const KeysIn wanted(keys, type_);
    const Batch values = values_from(rows, begin);
    without_gil([&] { spill.add(wanted.some(), values); });
  }
  void write_spill(DictSpill& spill, const std::string& kind) {
    without_gil([&] { put(spill.keys(), spill.values(), kind); });
  }

  void compact(ProgressArgument progress) {
    struct Compacting {
      int& count;
      explicit Compacting(int& counted) : count(counted) { ++count; }
      Compacting(const Compacting&) = delete;
      Compacting& operator=(const Compacting&) = delete;
      ~Compacting() { --count; }
    };
    const Compacting compacting(num_compacting_);
    monitored(std::move(progress), [&](Monitor* monitor) { dict_.compact(monitor); });
  }

  AnyObject check() {
    const auto problems = without_gil([&] { return dict_.check(); });
    nb::list made;
    for (const Problem& problem : problems) made.append(tuple_of(problem));
    return made;
  }

 private:
  Batch values_from(nb::list rows, std::int64_t begin) const {
    return batch_of_rows(dict_.schema(), rows, "item ", begin, false,
                         form_ == DictValueForm::scalar);
  }

  void put(const DictKeys& keys, const Batch& values, const std::string& kind) {
    if (kind == "assign") {
      dict_.assign(keys, values);
    } else {
      dict_.extend(keys, values, duplicates_from(kind));
    }
  }

  /// Holds the GIL, because looking up one key takes less time than releasing and acquiring the
  /// GIL. While a compact() runs, releases the GIL to avoid a deadlock: compact() acquires the GIL,
  /// to report progress, while it holds a lock of the dictionary.
  FoundRow find(nb::handle object) {
    const KeyIn key = key_from(object.ptr(), type_);
    DictHandle& handle = *handle_of(dict_);
    if (!key.fits) return {};
    const auto look_up = [&] {
      return type_ == DictKeyType::int64 ? handle.find(key.number) : handle.find(key.text);
    };
    return num_compacting_ == 0 ? look_up() : without_gil(look_up);
  }

  FoundRows find_some(const KeysIn& keys) { return handle_of(dict_)->find_many(keys.some()); }

  nb::object value(const DictState& state, std::int64_t row) {
    const FrameworkScope scope(framework_);
    const DatasetState& values = *state.values;
    if (is_plain_row_) {
      const StoredColumn& stored = *values.parts[0].columns[0];
      const Column& column = values.schema.columns()[0];
      const std::byte* from =
          stored.values.raw_data() + static_cast<std::uint64_t>(row) * stored.stride_bytes;
      if (form_ == DictValueForm::scalar) {
        if (nb::object scalar = scalar_of(column.dtype, from); scalar.is_valid()) return scalar;
      }
      return copy_array_of(column.dtype, column.shape, contiguous_,
                           {from, static_cast<std::size_t>(stored.row_bytes)}, values.pool);
    }
    const nb::object made = maker_.row(gather(values, std::span(&row, 1), {}));
    return form_ == DictValueForm::columns ? made : plain(made);
  }

  nb::object values_of(const Batch& batch) {
    const FrameworkScope scope(framework_);
    const nb::object made = maker_.batch(batch);
    return form_ == DictValueForm::columns ? made : plain(made);
  }

  static nb::object plain(const nb::object& dict) { return nb::object(dict[kValueName.c_str()]); }

  nb::object mask_of(const std::vector<std::int64_t>& rows) const {
    const FrameworkScope scope(framework_);
    const Tensor found = Tensor::zeros(DType::bool_, {static_cast<std::int64_t>(rows.size())});
    std::ranges::transform(rows, found.mutable_raw_data(), [](std::int64_t row) {
      return static_cast<std::byte>(row >= 0 ? 1 : 0);
    });
    return array_of(found, "found");
  }

  static nb::object key_object(const StoredKeys& keys, std::int64_t row) {
    if (!keys.is_text()) return nb::int_(keys.number(row));
    const std::string_view key = keys.text(row);
    if (keys.type == DictKeyType::string) return text(key);
    return nb::steal(PyBytes_FromStringAndSize(key.data(), static_cast<Py_ssize_t>(key.size())));
  }

  /// Raises KeyError. If exactly one key is missing, the argument of the exception is that key, as
  /// for a dict. Otherwise it is a message that names the first missing keys.
  [[noreturn]] static void raise_missing(const KeysIn& keys,
                                         const std::vector<std::int64_t>& rows) {
    nb::list missing;
    std::size_t count = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] >= 0) continue;
      if (count++ < kMaxNamed) missing.append(keys.object(i));
    }
    if (count == 1) raise_key(missing[0]);
    std::string message = std::to_string(count) + " keys are missing: ";
    for (std::size_t i = 0; i < nb::len(missing); ++i) {
      message += (i == 0 ? "" : ", ") + utf8(nb::repr(missing[i]));
    }
    if (count > kMaxNamed) message += ", ...";
    raise_key(text(message));
  }

  inline static const std::string kValueName = "value";

  MappedDict dict_;
  Framework framework_;
  DictKeyType type_;
  DictValueForm form_;
  BatchMaker maker_;
  int num_compacting_ = 0;     ///< running calls of compact(); guarded by the GIL
  bool is_plain_row_ = false;  ///< a value is one contiguous run of bytes
  Shape contiguous_;
};

void build_from_dataset(const DatasetHandle& source, PathArgument path, const std::string& key,
                        const std::string& duplicates, ProgressArgument progress) {
  const Path target = path_from(path);
  MappedDictOptions options;
  options.duplicates = duplicates_from(duplicates);
  monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    build_mapped_dict(target, source.dataset, key, options);
  });
}

}  // namespace

DictValueForm form_from(std::string_view name) {
  if (name == "tensor") return DictValueForm::tensor;
  if (name == "scalar") return DictValueForm::scalar;
  if (name == "columns") return DictValueForm::columns;
  throw base::invalid_argument().part("form").expected("tensor, scalar or columns").found(name);
}

DuplicateKeys duplicates_from(std::string_view name) {
  if (name == "error") return DuplicateKeys::error;
  if (name == "last") return DuplicateKeys::last;
  throw base::invalid_argument()
      .part("duplicates")
      .expected("\"error\" or \"last\"")
      .found("\"", name, "\"");
}

void bind_mapped_dict(nb::module_& module) {
  nb::class_<DictSpill>(module, "DictSpill");
  nb::class_<DictWalk>(module, "DictWalk");
  nb::class_<Dict>(module, "MappedDict")
      .def(nb::init<PathArgument, const std::string&, AnyObject, int>(), "path"_a, "mode"_a,
           "ragged"_a, "framework"_a)
      .def("__len__", [](Dict& self) { return without_gil([&] { return self.dict().size(); }); })
      .def("__contains__", &Dict::contains, "key"_a.none())
      .def("__getitem__", &Dict::item, "key"_a.none(),
           nb::sig("def __getitem__(self, key: typing.Any) -> typing.Any"))
      .def("get", &Dict::get, "key"_a.none(), "default"_a = nb::none(),
           nb::sig("def get(self, key: typing.Any, default: typing.Any = None) -> typing.Any"))
      .def("_key_type", &Dict::key_type)
      .def("_form", &Dict::form)
      .def("_schema_json", [](Dict& self) { return text(self.dict().schema().to_json()); })
      .def("_get_many", &Dict::get_many, "keys"_a, "raise_missing"_a)
      .def("_rows", &Dict::rows, "keys"_a.none())
      .def("_walk", &Dict::walk)
      .def("_walk_on", &Dict::walk_on, "walk"_a, "with_values"_a)
      .def("_is_dense",
           [](Dict& self) { return without_gil([&] { return self.dict().is_dense(); }); })
      .def("_ordered_rows", &Dict::ordered_rows)
      .def("_dataset",
           [](Dict& self) {
             return DatasetHandle{without_gil([&] { return self.dict().dataset(); })};
           })
      .def("_spill", &Dict::spill)
      .def("_spill_items", &Dict::spill_items, "spill"_a, "begin"_a, "keys"_a, "rows"_a)
      .def("_write_spill", &Dict::write_spill, "spill"_a, "kind"_a)
      .def("_write", &Dict::write, "begin"_a, "keys"_a, "rows"_a, "kind"_a)
      .def("_compact", &Dict::compact, "progress"_a.none())
      .def("_flush", [](Dict& self) { without_gil([&] { self.dict().flush(); }); })
      .def("_close", [](Dict& self) { without_gil([&] { self.dict().close(); }); })
      .def("_check", &Dict::check)
      .def("_refresh", [](Dict& self) { without_gil([&] { self.dict().refresh(); }); });
  module.def("build_mapped_dict", build_from_dataset, "source"_a, "path"_a, "key"_a, "duplicates"_a,
             "progress"_a.none());
}

}  // namespace tenfold::python
