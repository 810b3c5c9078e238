#include "mapper/state_paths.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/node.hpp"
#include "mapper/state_index.hpp"

namespace tenfold {
namespace {

const std::vector<std::pair<std::string, DType>>& columns() {
  static const std::vector<std::pair<std::string, DType>> all = {
      {"table", DType::int64}, {"row", DType::int64}, {"level", DType::bool_}};
  return all;
}

std::string_view parent_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

void require_path(std::string_view path) {
  const bool is_path = !path.empty() && path.front() != '/' && path.back() != '/' &&
                       path.find("//") == std::string_view::npos;
  if (!is_path) throw not_a_path("state " + base::quote(path));
}

/// Truncates `path` to the maximum depth of a hierarchy. Without a limit, looking up each prefix of
/// a long path would take time proportional to the square of its length.
std::string_view known_depth(std::string_view path) {
  std::size_t end = 0;
  for (std::size_t depth = 0; depth < kMaxDepth; ++depth) {
    const std::size_t slash = path.find('/', end);
    if (slash == std::string_view::npos) return path;
    end = slash + 1;
  }
  return path.substr(0, end - 1);
}

}  // namespace

Error not_a_path(const std::string& state) {
  return base::invalid_argument().part(state).expected(
      "a path whose components are not empty and do not contain \"/\"");
}

StatePaths::StatePaths(const TensorDict& node)
    : dict_(open_state_index(node, DictKeyType::string, columns())),
      tables_tensor_(dict_.dataset().column("table").contiguous()),
      rows_tensor_(dict_.dataset().column("row").contiguous()),
      levels_tensor_(dict_.dataset().column("level").contiguous()),
      tables_(tables_tensor_.span<std::int64_t>()),
      rows_(rows_tensor_.span<std::int64_t>()),
      levels_(reinterpret_cast<const std::uint8_t*>(levels_tensor_.raw_data())) {
  const std::array<std::string_view, 1> root = {""};
  const auto found = dict_.rows(root);
  if (found[0] < 0 || !is_level(found[0])) {
    throw base::corrupt(dict_.dataset().tree().where())
        .part("paths")
        .expected("a level with the path \"\"")
        .found("none");
  }
}

TensorDict StatePaths::make(std::span<const std::string_view> paths,
                            std::span<const std::int64_t> tables,
                            std::span<const std::int64_t> rows,
                            std::span<const std::uint8_t> is_level) {
  if (tables.size() != paths.size() || rows.size() != paths.size() ||
      is_level.size() != paths.size()) {
    throw base::invalid_argument()
        .part("paths")
        .expected("a table, a row and a level for each of ", paths.size(), " paths")
        .found(tables.size(), ", ", rows.size(), " and ", is_level.size());
  }
  Tensor levels = Tensor::zeros(DType::bool_, {static_cast<std::int64_t>(is_level.size())});
  std::transform(is_level.begin(), is_level.end(), levels.mutable_data<bool>(),
                 [](std::uint8_t value) { return value != 0; });
  return make_state_index(
      paths, DictKeyType::string,
      {{"table", Tensor::from(tables)}, {"row", Tensor::from(rows)}, {"level", std::move(levels)}});
}

StatePlace StatePaths::place_at(std::int64_t row) const {
  const auto at = static_cast<std::size_t>(row);
  return {tables_[at], rows_[at]};
}

std::vector<StatePlace> StatePaths::find(std::span<const std::string_view> paths) const {
  std::vector<StatePlace> places(paths.size());
  std::vector<Search> searches;
  const std::vector<std::int64_t> found = dict_.rows(paths);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (found[i] >= 0 && !paths[i].empty()) {
      places[i] = place_at(found[i]);
    } else {
      require_path(paths[i]);
      const std::string_view known = known_depth(paths[i]);
      searches.push_back({i, known.size() < paths[i].size() ? known : parent_of(known)});
    }
  }
  if (!searches.empty()) climb(std::move(searches), places);
  return places;
}

StatePlace StatePaths::find_below(std::string_view path) const {
  StatePlace place;
  climb({{0, known_depth(path)}}, std::span(&place, 1));
  return place;
}

/// Looks up shorter and shorter prefixes of all paths. Each round is one lookup of many keys.
void StatePaths::climb(std::vector<Search> searches, std::span<StatePlace> places) const {
  std::vector<std::string_view> parts;
  while (!searches.empty()) {
    parts.clear();
    for (const Search& search : searches) parts.push_back(search.part);
    const std::vector<std::int64_t> found = dict_.rows(parts);
    std::size_t left = 0;
    for (std::size_t i = 0; i < searches.size(); ++i) {
      Search search = searches[i];
      if (found[i] >= 0) {
        const StatePlace place = place_at(found[i]);
        // A value has no entries below it, but a mapper interprets the rest of the path.
        if (is_level(found[i]) || place.table == kMapperTable) {
          places[search.position] = place;
          continue;
        }
      }
      // The constructor checked that there is a root, but another process may have changed the
      // file.
      if (search.part.empty()) {
        places[search.position] = {kNoTable, 0};
        continue;
      }
      search.part = parent_of(search.part);
      searches[left++] = search;
    }
    searches.resize(left);
  }
}

std::string StatePaths::nearest_level(std::string_view path) const {
  path = known_depth(path);
  for (; !path.empty(); path = parent_of(path)) {
    const std::array<std::string_view, 1> part = {path};
    const std::int64_t row = dict_.rows(part)[0];
    if (row >= 0 && is_level(row)) break;
  }
  return std::string(path);
}

void StatePaths::for_each(const std::function<void(const Node&)>& use) const {
  constexpr std::int64_t kRows = 1 << 14;
  for (std::int64_t begin = 0; begin < size(); begin += kRows) {
    const std::int64_t end = std::min(begin + kRows, size());
    const Batch batch = dict_.dataset().select({"key"}).rows(begin, end);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::string_view path = batch.text("key", row - begin);
      if (!path.empty()) use({path, place_at(row), is_level(row)});
    }
  }
}

}  // namespace tenfold
