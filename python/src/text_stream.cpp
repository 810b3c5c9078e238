#include "ingest/text/text_stream.hpp"
#include "arguments.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "batch_out.hpp"
#include "call.hpp"
#include "ingest/text/source_files.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

/// Passes the rows of text files to Python.
class TextStreamHandle {
 public:
  TextStreamHandle(PathsArgument sources, AnyObject schema, const std::string& format,
                   const std::string& separator)
      : schema_(Schema::from_json(utf8(schema), "schema")) {
    const std::vector<Path> paths = paths_from(sources);
    const SourceFormat known = source_format_from(format);
    const char between = separator_from(separator);
    stream_ = without_gil(
        [&] { return std::make_unique<TextStream>(find_sources(paths, known, between), schema_); });
  }

  std::int64_t hold(std::optional<std::int64_t> count) {
    return without_gil([&] { return stream_->hold(count); });
  }

  /// Returns the items of a TextRows: (batch, kept, bad). Without rows, the batch is an empty dict.
  nb::tuple rows(const std::vector<std::int64_t>& records, bool stops_at_bad, AnyObject ragged) {
    const TextRows rows = without_gil([&] { return stream_->rows(records, stops_at_bad); });
    nb::object batch = nb::dict();
    if (!rows.kept.empty()) batch = BatchMaker(schema_, std::move(ragged)).batch(rows.batch);
    nb::list bad;
    for (const TextRows::Bad& one : rows.bad) {
      bad.append(nb::make_tuple(one.position, one.is_malformed, dict_of(one)));
    }
    return nb::make_tuple(batch, rows.kept, bad);
  }

 private:
  static nb::dict dict_of(const TextRows::Bad& bad) {
    nb::dict made;
    made["path"] = text(bad.file);
    made["line"] = *bad.row.line;
    made["row"] = bad.row.row;
    made["column"] = bad.row.column.empty() ? nb::object(nb::none()) : text(bad.row.column);
    made["error"] = text(bad.row.error);
    made["text"] = text(bad.row.text);
    return made;
  }

  Schema schema_;
  std::unique_ptr<TextStream> stream_;
};

nb::list list_of(const std::vector<Path>& files) {
  nb::list made;
  for (const Path& path : files) made.append(text(path.string()));
  return made;
}

nb::list find_all_files(PathsArgument sources) {
  const std::vector<Path> paths = paths_from(sources);
  return list_of(without_gil([&] { return find_files(paths); }));
}

/// The files that `sources` expand to. Throws like find_sources() if one of them is not a text
/// source.
nb::list find_text_files(PathsArgument sources, const std::string& format,
                         const std::string& separator) {
  const std::vector<Path> paths = paths_from(sources);
  const SourceFormat known = source_format_from(format);
  const char between = separator_from(separator);
  return list_of(without_gil([&] {
    static_cast<void>(find_sources(paths, known, between));
    return find_files(paths);
  }));
}

}  // namespace

void bind_text_stream(nb::module_& module) {
  nb::class_<TextStreamHandle>(module, "TextStream")
      .def(nb::init<PathsArgument, AnyObject, std::string, std::string>(), "sources"_a, "schema"_a,
           "format"_a, "separator"_a)
      .def("hold", &TextStreamHandle::hold, "count"_a.none())
      .def("rows", &TextStreamHandle::rows, "records"_a, "stops_at_bad"_a, "ragged"_a);
  module.def("find_files", find_all_files, "sources"_a);
  module.def("find_text_files", find_text_files, "sources"_a, "format"_a, "separator"_a);
}

}  // namespace tenfold::python
