#include <tenfold/ingest.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "formats/folder/keys.hpp"
#include "formats/shared/progress.hpp"
#include "ingest/bad_row.hpp"
#include "ingest/source_report.hpp"
#include "ingest/table/table_writer.hpp"
#include "ingest/text/block_pipeline.hpp"
#include "ingest/text/csv_rows.hpp"
#include "ingest/text/json_rows.hpp"
#include "ingest/text/record_blocks.hpp"
#include "ingest/text/row_builder.hpp"
#include "ingest/text/row_plan.hpp"
#include "ingest/text/source_files.hpp"
#include "ingest/text/value_types.hpp"

namespace tenfold {

using namespace detail;
namespace {

/// Bytes of text in a block, chosen so that the rows of a block fit in the CPU caches.
constexpr std::size_t kFileBlockBytes = std::size_t{1} << 20;

/// A thread delivers its rows before the end of a block if they have more than this many bytes.
constexpr std::size_t kChunkBytes = std::size_t{4} << 20;
/// A thread also delivers before the end of a block if it has this many rejected records.
constexpr std::size_t kMaxRejected = 4096;
/// The size of the rows is compared with kChunkBytes after every kSizeCheckRows rows.
constexpr std::int64_t kSizeCheckRows = 64;

/// Infers types from blocks, and merges them in the order of the blocks.
class TypeWork final : public BlockWork {
 public:
  /// `all` is changed only by the thread that delivers.
  explicit TypeWork(ValueTypes& all) : all_(all) {}

  void begin(const Block& block) override { block_ = &block; }
  bool work() override {
    types_ = types_in(*block_);
    return false;
  }
  bool deliver() override {
    all_.merge(types_);
    return true;
  }

 private:
  ValueTypes& all_;
  ValueTypes types_;
  const Block* block_ = nullptr;
};

/// State shared by all threads that write one table. Changed only by the thread that delivers.
struct RowSink {
  TableWriter& writer;
  OnError on_error = OnError::raise;
  std::int64_t most_rows = 0;  ///< maximum number of rows in a chunk; 0: no limit

  std::uint64_t num_bad_rows = 0;
  std::uint64_t num_kept = 0;     ///< number of records that became rows
  bool needs_promotion = false;   ///< the plan is too narrow: everything written is discarded
  std::uint64_t num_records = 0;  ///< records of the file that were delivered
  std::uint64_t first_line = 1;   ///< line of the file at which the block to deliver starts
  std::vector<bool> seen{};       ///< for each target: its name occurred in a record
  /// Names that are not in the plan.
  std::set<std::string> ignored{};
};

/// Converts blocks to rows of a table.
class RowWork final : public BlockWork {
 public:
  RowWork(const RowPlan& plan, RowSink& sink)
      : plan_(plan),
        sink_(sink),
        rows_(plan),
        json_(plan, rows_),
        csv_(plan, rows_),
        cursor_(Block()) {}

  void begin(const Block& block) override {
    block_ = &block;
    cursor_ = RecordCursor(block);
    at_end_ = false;
    num_records_ = 0;
    delivered_ = 0;
    if (block.file->kind == TextKind::csv && block.file != csv_file_) {
      csv_file_ = block.file;
      csv_.begin_file(*block.file);
    }
  }

  bool work() override {
    rows_.clear();
    rejected_.clear();
    const TextKind kind = block_->file->kind;
    Record record;
    while (cursor_.next(record)) {
      const Outcome outcome =
          kind == TextKind::csv ? csv_.add(record.begin, record.end)
                                : json_.add(record.begin, record.end, kind == TextKind::json_lines);
      const std::uint64_t number = num_records_++;
      if (outcome == Outcome::promote) {
        promote_ = true;
        return false;
      }
      if (outcome != Outcome::kept) {
        rejected_.push_back({.line = record.line,
                             .record = number,
                             .fault = kind == TextKind::csv ? csv_.fault() : json_.fault(),
                             .text = {record.begin, record.end}});
        if (sink_.on_error == OnError::raise) return false;
        if (rejected_.size() == kMaxRejected) return true;
      }
      const std::int64_t count = rows_.num_rows();
      if (sink_.most_rows > 0 && count >= sink_.most_rows) return true;
      if (count % kSizeCheckRows == 0 && rows_.size_bytes() > kChunkBytes) return true;
    }
    at_end_ = true;
    return false;
  }

  bool deliver() override {
    if (block_->begins_file && delivered_ == 0) {
      sink_.num_records = 0;
      sink_.first_line = block_->first_line;
    }
    if (promote_) {
      sink_.needs_promotion = true;
      return false;
    }
    for (const Rejected& rejected : rejected_) refuse(rejected);
    write_rows();
    note_names();
    sink_.num_records += num_records_ - delivered_;
    delivered_ = num_records_;
    if (at_end_) sink_.first_line += cursor_.num_lines();
    return true;
  }

 private:
  /// A rejected record.
  struct Rejected {
    std::uint64_t line = 0;    ///< line, relative to the block
    std::uint64_t record = 0;  ///< index of the record in the block
    RowFault fault;
    std::string_view text;  ///< points into the block's memory
  };

  /// Throws if on_error is raise. Otherwise counts the bad row and, if on_error is collect, also
  /// lists it in `bad_rows.jsonl`.
  void refuse(const Rejected& rejected) {
    const auto row = static_cast<std::int64_t>(sink_.num_records - delivered_ + rejected.record);
    const std::string& file = block_->file->display;
    const std::uint64_t line = sink_.first_line + rejected.line;
    if (sink_.on_error == OnError::raise) {
      const bool is_malformed = rejected.fault.outcome == Outcome::malformed;
      throw error_of_row(is_malformed ? ErrorCode::corrupt : ErrorCode::invalid_argument, file,
                         line, row, rejected.fault);
    }
    ++sink_.num_bad_rows;
    if (sink_.on_error == OnError::collect) {
      const BadRow bad = bad_row_of(file, line, row, rejected.fault, rejected.text);
      sink_.writer.append_text(formats::folder::kBadRowsName, to_json_line(bad));
    }
  }

  void write_rows() {
    const std::vector<ColumnChunk> chunks = rows_.finish();
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      // Make a column nullable only when it gets its first null. This takes no more time than a
      // column that is nullable from the start.
      if (!chunks[i].valid.empty()) sink_.writer.make_nullable(i);
    }
    sink_.writer.append(chunks);
    sink_.num_kept += static_cast<std::uint64_t>(rows_.num_rows());
  }

  void note_names() {
    sink_.seen.resize(plan_.targets.size(), false);
    json_.note_names(sink_.seen, sink_.ignored);
    csv_.note_names(sink_.seen, sink_.ignored);
  }

  const RowPlan& plan_;
  RowSink& sink_;
  RowBuilder rows_;
  JsonRows json_;
  CsvRows csv_;
  const Block* block_ = nullptr;
  RecordCursor cursor_;
  std::shared_ptr<const TextFile> csv_file_;
  std::uint64_t num_records_ = 0;  ///< records of the block that were processed so far
  std::uint64_t delivered_ = 0;    ///< number of processed records that were delivered
  std::vector<Rejected> rejected_;
  bool at_end_ = false;  ///< all records of the block were processed
  bool promote_ = false;
};

class Ingestion {
 public:
  Ingestion(const std::vector<Path>& sources, const Path& path, const IngestOptions& options)
      : files_(find_sources(sources, options.format, options.separator)),
        num_bytes_(total_bytes_of(sources)),
        path_(path),
        options_(options) {
    use_na_values();
    report_.num_files = files_.size();
    report_.num_bytes = num_bytes_;
  }

  IngestReport run() {
    if (options_.schema) {
      plan_ = selected(plan_of(*options_.schema));
      if (!has_all_columns()) fail_unknown(plan_of(*options_.schema));
      write();
      return std::move(report_);
    }
    plan_ = selected(plan_of(first_types(), report_.promotions));
    if (!has_all_columns()) infer();
    // Usually the types of the first rows fit all rows. If they do not, infer the types from the
    // whole source and write again.
    if (!write()) {
      infer();
      write();
    }
    return std::move(report_);
  }

  /// The schema for the whole source.
  Schema inferred() {
    infer();
    return plan_.schema();
  }

 private:
  void use_na_values() {
    if (options_.na_values.empty()) return;
    require_csv(files_, "na_values");
    const auto values = std::make_shared<const std::set<std::string, std::less<>>>(
        options_.na_values.begin(), options_.na_values.end());
    for (SourceFile& file : files_) file.na_values = values;
  }

  /// The types in the first block of the source.
  ValueTypes first_types() {
    BlockReader reader(files_, kFileBlockBytes);
    Block block;
    return reader.next(block) ? types_in(block) : ValueTypes();
  }

  void infer() {
    ValueTypes types;
    BlockReader reader(files_, kFileBlockBytes);
    formats::Progress progress(options_.monitor, num_bytes_, "infer types");
    run_pipeline(reader, options_.num_threads, progress,
                 [&] { return std::make_unique<TypeWork>(types); });
    RowPlan all = plan_of(types, report_.promotions);
    // Columns with only nulls, and lists that are empty or contain only nulls, become float64.
    for (Target& target : all.targets) target.is_typed = true;
    plan_ = selected(all);
    plan_.is_final = true;
    if (!has_all_columns()) fail_unknown(all);
    if (all.targets.empty() && types.num_objects > 0) fail_without_columns(types.num_objects);
  }

  bool has_all_columns() const {
    const ColumnsByName columns(plan_.columns());
    return std::ranges::none_of(options_.columns,
                                [&](const std::string& name) { return columns.at(name).empty(); });
  }

  /// The requested columns, in the requested order.
  RowPlan selected(RowPlan plan) {
    if (options_.columns.empty()) return plan;
    std::vector<Target> targets;
    for (const std::size_t i : known_columns(plan.columns(), options_.columns)) {
      targets.push_back(plan.targets[i]);
    }
    plan.targets = std::move(targets);
    std::erase_if(plan.empty_records, [&](const KeyPath& path) {
      return position_of(path, options_.columns) == options_.columns.size();
    });
    plan.ignores_new_columns = true;
    index_fields(plan);
    std::erase_if(report_.promotions, [&](const Promotion& promotion) {
      return std::ranges::none_of(plan.targets, [&](const Target& target) {
        return target.column.name() == promotion.column;
      });
    });
    return plan;
  }

  [[noreturn]] void fail_unknown(const RowPlan& all) const {
    const std::vector<Column> columns = all.columns();
    const ColumnsByName by_name(columns);
    for (const std::string& name : options_.columns) {
      if (!by_name.at(name).empty()) continue;
      std::vector<std::string> names;
      for (const Column& column : columns) names.push_back(column.name());
      throw base::key_not_found(subject())
          .part("column ", base::quote(name))
          .expected("a column of the ", (options_.schema ? "schema" : "data"))
          .found("no column of this name")
          .remedy(base::did_you_mean(name, names));
    }
    throw base::key_not_found(subject()).expected("columns").found("none");
  }

  [[noreturn]] void fail_without_columns(std::uint64_t num_records) const {
    throw base::invalid_argument(subject())
        .part("columns")
        .expected("a key in some record")
        .found("none in ", num_records, num_records == 1 ? " record" : " records");
  }

  const std::string& subject() const { return files_.front().display; }

  /// Writes the data set. Returns false, and publishes nothing, if a row needs a plan with other
  /// types or more columns (Outcome::promote).
  bool write() {
    TableWriter writer(path_, plan_.schema(),
                       {.overwrite = options_.overwrite,
                        .durable = options_.durable,
                        .num_threads = options_.num_threads,
                        .monitor = options_.monitor});
    RowSink sink{.writer = writer,
                 .on_error = options_.on_error,
                 .most_rows = options_.batch_rows,
                 .seen = std::vector<bool>(plan_.targets.size(), false)};
    BlockReader reader(files_, kFileBlockBytes);
    formats::Progress progress(options_.monitor, num_bytes_, "ingest");
    run_pipeline(reader, options_.num_threads, progress,
                 [&] { return std::make_unique<RowWork>(plan_, sink); });
    if (sink.needs_promotion) return false;
    require_seen(sink);
    if (plan_.targets.empty() && sink.num_kept > 0) fail_without_columns(sink.num_kept);
    writer.commit();
    progress.finish();
    report_.num_rows = static_cast<std::uint64_t>(writer.num_rows());
    report_.num_bad_rows = sink.num_bad_rows;
    if (plan_.is_given) report_.ignored.assign(sink.ignored.begin(), sink.ignored.end());
    return true;
  }

  /// If there are rows: throws if a column of a given schema occurs in none of them, because its
  /// name is probably misspelled.
  void require_seen(const RowSink& sink) const {
    if (!plan_.is_given || (sink.num_bad_rows == 0 && sink.writer.num_rows() == 0)) return;
    for (std::size_t i = 0; i < plan_.targets.size(); ++i) {
      if (sink.seen[i]) continue;
      const std::string name = plan_.targets[i].column.name();
      const std::vector<std::string> ignored(sink.ignored.begin(), sink.ignored.end());
      throw base::invalid_argument(subject())
          .part("column ", base::quote(name), " of the schema")
          .expected("the column in some row")
          .found("no row with it")
          .remedy(base::did_you_mean(name, ignored));
    }
  }

  std::vector<SourceFile> files_;
  std::uint64_t num_bytes_;
  Path path_;
  const IngestOptions& options_;
  RowPlan plan_;
  IngestReport report_;
};

}  // namespace

IngestReport ingest(const std::vector<Path>& sources, const Path& path,
                    const IngestOptions& options) {
  return Ingestion(sources, path, options).run();
}

IngestReport ingest(const Path& source, const Path& path, const IngestOptions& options) {
  return ingest(std::vector<Path>{source}, path, options);
}

SourceFormat source_format_from(std::string_view name) {
  static constexpr std::pair<std::string_view, SourceFormat> kNames[] = {
      {"", SourceFormat::by_name},  {"jsonl", SourceFormat::json_lines},
      {"json", SourceFormat::json}, {"csv", SourceFormat::csv},
      {"tsv", SourceFormat::tsv},   {"ndjson", SourceFormat::json_lines}};
  for (const auto& [known, format] : kNames) {
    if (known == name) return format;
  }
  throw base::invalid_argument()
      .part("format")
      .expected("jsonl, ndjson, json, csv or tsv")
      .found(base::quote(name));
}

char separator_from(std::string_view text) {
  if (text.empty()) return '\0';
  if (text == "\\t") return '\t';
  if (text.size() == 1 && is_csv_separator(text.front())) return text.front();
  throw base::invalid_argument()
      .part("separator")
      .expected("one ASCII character such as ',', ';', '|' or a tab")
      .found(base::quote(text));
}

Schema infer_schema(const std::vector<Path>& sources, int num_threads, Monitor* monitor,
                    SourceFormat format, const std::vector<std::string>& na_values,
                    char separator) {
  IngestOptions options;
  options.format = format;
  options.num_threads = num_threads;
  options.monitor = monitor;
  options.na_values = na_values;
  options.separator = separator;
  return Ingestion(sources, Path(), options).inferred();
}

bool is_ingestible(const Path& source) {
  return kind_of_name(source.filename().string()) != SourceKind::unknown;
}

}  // namespace tenfold
