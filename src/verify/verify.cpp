#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "dataset/dataset_state.hpp"
#include "dict/state.hpp"
#include "formats/shared/problem.hpp"
#include "io/registry.hpp"
#include "io/sparse_check.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold {
namespace {

/// Returns true if end offsets are nondecreasing and at most `limit`, the number of elements. Adds
/// a problem otherwise.
bool check_ends(const base::Where& where, const Column& column, std::string_view part,
                const Tensor& ends, std::int64_t limit, std::vector<Problem>& problems) {
  if (ends.numel() == 0) return true;
  std::int64_t before = 0;
  for (const std::int64_t end : ends.span<std::int64_t>()) {
    if (end < before || end > limit) {
      problems.push_back(
          detail::formats::problem_of(base::corrupt(where)
                                          .part("column ", base::quote(column.name()))
                                          .part(part)
                                          .expected("nondecreasing end offsets from 0 to ", limit)
                                          .found(before, " before ", end)));
      return false;
    }
    before = end;
  }
  return true;
}

void check_columns(const Table& table, std::vector<Problem>& problems) {
  for (std::size_t i = 0; i < table.schema().size(); ++i) {
    const Column& column = table.schema().columns()[i];
    if (!column.has_ends()) continue;
    const StoredColumn& stored = table.stored(i);
    const bool has_items = column.ragged && column.is_text();
    const Tensor& counted = has_items ? stored.item_ends : stored.values;
    const std::string& where = table.where();
    const bool are_valid =
        check_ends(where, column, "ends", stored.ends, counted.shape()[0], problems);
    if (!has_items || stored.ends.numel() == 0 || !are_valid) continue;
    // A failed append may have left elements after the last row.
    const std::int64_t num_items = stored.ends.span<std::int64_t>().back();
    check_ends(where, column, "ends of items", stored.item_ends.narrow(0, num_items),
               stored.values.shape()[0], problems);
  }
}

std::vector<Problem> check_columns(const DatasetState& state) {
  std::vector<Problem> problems;
  for (const DatasetPart& part : state.parts) check_columns(*part.opened().table, problems);
  return problems;
}

/// Checks the rows of a tree, which may be invalid although their checksums match. The end offsets
/// of ragged, string and bytes columns must be nondecreasing and in range. The index of a
/// dictionary must find its keys. Does nothing for a tree without a schema.
std::vector<Problem> check_rows_of(const TensorDict& tree) {
  if (!tree.info().schema) return {};
  try {
    const auto rows = state_of(tree);
    std::vector<Problem> problems = check_columns(*rows);
    if (!problems.empty() || !DictNote::of(tree)) return problems;
    auto state = dict_state_of(rows);
    if (!is_trusted(*state)) make_index_in_memory(*state);
    return check_dict(*state);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    return {detail::formats::problem_of(error, {tree.where(), "rows"})};
  }
}

}  // namespace

using namespace detail;
namespace {

/// Checks the sparse tensors and the rows of a tree. They may be invalid (for example, have an
/// index out of range) although their checksums match.
void check_tree(const formats::Format& format, const Path& path, VerifyReport& report) {
  try {
    const TensorDict tree = format.open(path, {});
    check_all_sparse_indices(tree, path.string());
    for (Problem& problem : check_rows_of(tree)) report.problems.push_back(std::move(problem));
  } catch (const Error& error) {
    detail::formats::add_problem(report, error, {path.string(), "tree"});
  }
}

}  // namespace

VerifyReport verify(const Path& path, const VerifyOptions& options) {
  return os::read_unreplaced(path, [&] {
    const formats::Format& format = *format_of_content(path, options.format).format;
    VerifyReport report =
        format.verify(path, {.num_threads = options.num_threads, .monitor = options.monitor});
    if (report.ok()) check_tree(format, path, report);
    return report;
  });
}

}  // namespace tenfold
