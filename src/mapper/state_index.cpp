#include "mapper/state_index.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/node.hpp"
#include "dataset/leaf_names.hpp"
#include "dict/builder.hpp"
#include "dict/state.hpp"

namespace tenfold {
namespace {

const std::string kIndexLeaf = "key.index";

Column key_column(DictKeyType type) {
  Column column;
  column.path = {std::string(kDictKeyColumn)};
  column.kind = type == DictKeyType::string  ? ColumnKind::string
                : type == DictKeyType::bytes ? ColumnKind::bytes
                                             : ColumnKind::number;
  column.dtype = type == DictKeyType::int64 ? DType::int64 : DType::uint8;
  name_leaves(column);
  return column;
}

Schema schema_of(DictKeyType type, const std::vector<std::pair<std::string, DType>>& columns) {
  std::vector<Column> all = {key_column(type)};
  for (const auto& [name, dtype] : columns) {
    Column column;
    column.path = {name};
    column.dtype = dtype;
    name_leaves(column);
    all.push_back(std::move(column));
  }
  return Schema(std::move(all));
}

Value document_of(const Schema& schema) {
  Value document = schema.to_value();
  DictNote note;
  note.index = kIndexLeaf;
  std::get<Value::Object>(document.data()).members.emplace_back(kDictMember, note.to_value());
  return document;
}

/// Concatenates strings: their bytes and end offsets.
std::pair<Tensor, Tensor> joined(std::span<const std::string_view> texts) {
  std::uint64_t total_bytes = 0;
  for (const std::string_view text : texts) total_bytes += text.size();
  Buffer bytes = Buffer::allocate(static_cast<std::size_t>(total_bytes));
  std::vector<std::int64_t> ends;
  ends.reserve(texts.size());
  std::size_t end = 0;
  for (const std::string_view text : texts) {
    if (!text.empty()) std::memcpy(bytes.mutable_data() + end, text.data(), text.size());
    end += text.size();
    ends.push_back(static_cast<std::int64_t>(end));
  }
  return {Tensor(DType::uint8, {static_cast<std::int64_t>(total_bytes)}, std::move(bytes)),
          Tensor::from(std::span<const std::int64_t>(ends))};
}

template <class Key>
void require_unique(std::span<const Key> keys, const ShownKey& shown) {
  std::unordered_set<Key> seen;
  seen.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (seen.insert(keys[i]).second) continue;
    throw base::invalid_argument()
        .part("keys: ", shown ? "state " + shown(i) : shown_key(keys[i]))
        .expected("it once")
        .found("it twice, at positions ", std::ranges::find(keys, keys[i]) - keys.begin(), " and ",
               i);
  }
}

/// A node with the same entries. Its info can be changed without changing `tree`, which the caller
/// owns, and which another thread may read.
TensorDict copy_of(const TensorDict& tree) {
  auto node = std::make_shared<Node>();
  node->info = tree.info();
  node->where = node_of(tree)->where;
  node->keep = node_of(tree)->keep;
  TensorDict made = tensordict_of(std::move(node));
  tree.for_each([&](const std::string& key, const TensorDict::Item& item) { made.set(key, item); });
  return made;
}

Leaf unbatched(Tensor tensor) {
  Leaf leaf(std::move(tensor));
  leaf.mark_unbatched();
  return leaf;
}

}  // namespace

TensorDict make_state_index(const DictKeys& keys, DictKeyType type,
                            const std::vector<StateIndexColumn>& columns, const ShownKey& shown) {
  std::visit([&](const auto& all) { require_unique(all, shown); }, keys.views());
  const auto num_keys = static_cast<std::int64_t>(num_keys_of(keys));
  NodeInfo info;
  info.batch_size = {num_keys};
  TensorDict node(std::move(info));
  const Column column = key_column(type);
  StoredColumn stored;
  if (const auto* texts = std::get_if<std::span<const std::string_view>>(&keys.views())) {
    std::tie(stored.values, stored.ends) = joined(*texts);
    node.set(column.end_leaf[0], stored.ends);
    node.set(column.leaf[0], TensorDict::Item(unbatched(stored.values)));
  } else {
    stored.values = Tensor::from(std::get<std::span<const std::int64_t>>(keys.views()));
    stored.row_bytes = stored.stride_bytes = sizeof(std::int64_t);
    node.set(column.leaf[0], stored.values);
  }
  for (const StateIndexColumn& more : columns) node.set(more.name, more.values);
  const StoredKeys all = StoredKeys::of(column, stored, num_keys, {"", "keys"});
  const Buffer index = build_dict_index_in_memory(all);
  const auto num_buckets = static_cast<std::int64_t>(index.size_bytes() / kDictBucketBytes);
  const Tensor buckets(DType::int64, {num_buckets, static_cast<std::int64_t>(kDictSlots)}, index);
  node.set(kIndexLeaf, TensorDict::Item(unbatched(buckets)));
  return node;
}

TensorDict state_index_of(const MappedDict& dict) {
  if (!dict.is_dense()) {
    throw base::unsupported()
        .part("keys")
        .expected("a dictionary without superseded rows")
        .found("rows of values that were replaced")
        .remedy("compact() removes them");
  }
  const TensorDict tree = dict.dataset().tree();
  const std::optional<DictNote> note = DictNote::of(tree);
  const Schema schema = Schema::of(tree);
  const Column* found = schema.find(kDictKeyColumn);
  if (!note || found == nullptr) {
    throw base::invalid_argument().part("keys").expected("a dictionary").found("none");
  }
  NodeInfo info;
  info.batch_size = {dict.size()};
  TensorDict node(std::move(info));
  const Column column = key_column(dict.key_type());
  if (column.has_ends()) node.set(column.end_leaf[0], tree.get(found->end_leaf));
  node.set(column.leaf[0], tree.get(found->leaf));
  node.set(kIndexLeaf, tree.get(note->index));
  return node;
}

MappedDict open_state_index(const TensorDict& tree, DictKeyType type,
                            const std::vector<std::pair<std::string, DType>>& columns) {
  TensorDict node = copy_of(tree);
  node.info().schema = document_of(schema_of(type, columns));
  try {
    return MappedDict(std::move(node));
  } catch (const Error& error) {
    // A node that is not a dictionary is an error of the file, not of the caller.
    if (error.code() != ErrorCode::invalid_argument) throw;
    throw Error(error).code(ErrorCode::corrupt);
  }
}

}  // namespace tenfold
