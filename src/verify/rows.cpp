#include "verify/rows.hpp"

#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "dataset/dataset_state.hpp"
#include "dict/state.hpp"

namespace tenfold {
namespace {

/// `ends` are those of rows among `limit` elements.
void check_ends(const std::string& where, const Column& column, std::string_view part,
                const Tensor& ends, std::int64_t limit, std::vector<Problem>& problems) {
  if (ends.numel() == 0) return;
  std::int64_t before = 0;
  for (const std::int64_t end : ends.span<std::int64_t>()) {
    if (end < before || end > limit) {
      problems.push_back({where, "column " + base::quote(column.name()),
                          std::string(part) + ": expected ends that rise from 0 to " +
                              std::to_string(limit) + ", found " + std::to_string(before) +
                              " before " + std::to_string(end)});
      return;
    }
    before = end;
  }
}

std::vector<Problem> check_columns(const DatasetState& state) {
  std::vector<Problem> problems;
  const Table& table = *state.parts[0].table;
  for (std::size_t i = 0; i < table.schema().size(); ++i) {
    const Column& column = table.schema().columns()[i];
    if (!column.has_ends()) continue;
    const StoredColumn& stored = table.stored(i);
    const bool has_items = column.ragged && column.is_text();
    const Tensor& counted = has_items ? stored.item_ends : stored.values;
    const std::string& where = table.tree().where();
    check_ends(where, column, "ends", stored.ends, counted.shape()[0], problems);
    if (!has_items || stored.ends.numel() == 0 || !problems.empty()) continue;
    // Behind the last row may lie what an append that failed has left.
    const std::int64_t num_items = stored.ends.span<std::int64_t>().back();
    check_ends(where, column, "ends of items", stored.item_ends.narrow(0, num_items),
               stored.values.shape()[0], problems);
  }
  return problems;
}

}  // namespace

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
    return {{tree.where(), "rows", error.what()}};
  }
}

}  // namespace tenfold
