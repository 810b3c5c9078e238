#include <tenfold/ingest.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "call.hpp"
#include "ingest_report.hpp"

namespace tenfold::python {

using namespace nb::literals;

namespace {

nb::dict ingest_files(PathsArgument sources, PathArgument path, AnyObject schema, AnyObject columns,
                      const std::string& on_error, std::int64_t batch_rows, int num_threads,
                      bool overwrite, bool durable, ProgressArgument progress,
                      const std::string& format, NamesArgument na_values,
                      const std::string& separator) {
  const std::vector<Path> files = paths_from(sources);
  const Path target = path_from(path);
  IngestOptions options;
  if (!schema.is_none()) options.schema = Schema::from_json(utf8(schema), "schema");
  for (const nb::handle column : columns) options.columns.push_back(utf8(column));
  for (const nb::handle value : na_values) options.na_values.push_back(utf8(value));
  options.on_error = on_error_from(on_error);
  options.batch_rows = batch_rows;
  options.num_threads = num_threads;
  options.overwrite = overwrite;
  options.durable = durable;
  options.format = source_format_from(format);
  options.separator = separator_from(separator);
  const IngestReport report = monitored(std::move(progress), [&](Monitor* monitor) {
    options.monitor = monitor;
    return tenfold::ingest(files, target, options);
  });
  return dict_of(report);
}

nb::str infer_files(PathsArgument sources, int num_threads, const std::string& format,
                    NamesArgument na_values, const std::string& separator) {
  const std::vector<Path> files = paths_from(sources);
  const SourceFormat known = source_format_from(format);
  const char between = separator_from(separator);
  std::vector<std::string> missing;
  for (const nb::handle value : na_values) missing.push_back(utf8(value));
  const Schema schema = monitored(nb::none(), [&](Monitor* monitor) {
    return tenfold::infer_schema(files, num_threads, monitor, known, missing, between);
  });
  return text(schema.to_json());
}

}  // namespace

nb::dict dict_of(const IngestReport& report) {
  nb::dict made;
  made["num_rows"] = report.num_rows;
  made["num_bad_rows"] = report.num_bad_rows;
  made["num_files"] = report.num_files;
  made["num_bytes"] = report.num_bytes;
  nb::list promotions;
  for (const Promotion& promotion : report.promotions) {
    nb::dict item;
    item["column"] = text(promotion.column);
    item["from"] = text(promotion.from);
    item["to"] = text(promotion.to);
    promotions.append(item);
  }
  made["promotions"] = promotions;
  nb::list ignored;
  for (const std::string& name : report.ignored) ignored.append(text(name));
  made["ignored"] = ignored;
  return made;
}

void bind_ingest(nb::module_& module) {
  module.def("ingest_files", ingest_files, "sources"_a, "path"_a, "schema"_a.none(), "columns"_a,
             "on_error"_a, "batch_rows"_a, "num_threads"_a, "overwrite"_a, "durable"_a,
             "progress"_a.none(), "format"_a, "na_values"_a, "separator"_a);
  module.def("infer_files", infer_files, "sources"_a, "num_threads"_a, "format"_a, "na_values"_a,
             "separator"_a);
  module.def("is_ingestible", [](PathArgument path) { return is_ingestible(path_from(path)); });
}

}  // namespace tenfold::python
