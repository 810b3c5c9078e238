#include "formats/snapshot/tree.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include "base/text.hpp"
#include "core/tree/node.hpp"
#include "core/tree/typed_keys.hpp"
#include "formats/snapshot/entries.hpp"

namespace tenfold::detail::formats::snapshot {
namespace {

std::string_view logical(std::string_view path) { return path.substr(path.find('/') + 1); }

/// A part of app_state that is a container, made when it is entered.
class Part final : public LazyItem {
 public:
  Part(std::shared_ptr<const Context> context, std::string rank, std::string path, std::string key)
      : context_(std::move(context)),
        rank_(std::move(rank)),
        path_(std::move(path)),
        key_(std::move(key)) {}
  TensorDict::Item load() override {
    Node::Slot slot = slot_of_entry(context_, rank_, path_, key_);
    if (auto* tree = std::get_if<TensorDict>(&slot)) return std::move(*tree);
    if (auto* value = std::get_if<NonTensor>(&slot)) return std::move(*value);
    return std::get<std::shared_ptr<LazyItem>>(slot)->load();
  }

 private:
  std::shared_ptr<const Context> context_;
  std::string rank_;
  std::string path_;
  std::string key_;
};

/// The key that a piece of a path stands for; torchsnapshot takes any %XX.
std::string unescape(std::string_view piece) {
  std::string key;
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const auto digit = [&](std::size_t at) -> int {
      const char c = at < piece.size() ? piece[at] : ' ';
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'A' && c <= 'F') return c - 'A' + 10;
      if (c >= 'a' && c <= 'f') return c - 'a' + 10;
      return -1;
    };
    if (piece[i] == '%' && digit(i + 1) >= 0 && digit(i + 2) >= 0) {
      key += static_cast<char>(digit(i + 1) * 16 + digit(i + 2));
      i += 2;
    } else {
      key += piece[i];
    }
  }
  return base::is_utf8(key) ? key : std::string(piece);
}

bool is_container(EntryType type) {
  return type == EntryType::list || type == EntryType::dict || type == EntryType::ordered_dict;
}

/// We write an entry of the rank itself where app_state was no dict with str keys; torchsnapshot
/// ignores it.
void apply_root(const Entry* root, NodeInfo& info, const std::vector<Node::Entry>& entries) {
  if (root == nullptr || !is_container(root->type)) return;
  if (root->type == EntryType::list) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].key != std::to_string(i)) return;
    }
    info.kind = NodeKind::list;
    return;
  }
  if (root->type == EntryType::ordered_dict) info.kind = NodeKind::ordered_dict;
  const auto same = [](const Key& key, const auto& entry) { return key.text == entry.key; };
  if (!std::ranges::equal(root->keys, entries, same)) return;
  KeyTypes keys;
  for (const Key& key : root->keys) key.is_int ? keys.add_int() : keys.add_text();
  const auto text_at = [&](std::size_t i) -> const std::string& { return entries[i].key; };
  static_cast<void>(std::move(keys).finish(info, text_at));
}

/// What one rank sees of app_state, whose parts are called `tops` in paths.
TensorDict rank_tree(const std::shared_ptr<const Context>& context, const std::string& rank,
                     const std::vector<std::string>& tops, const std::string& where) {
  auto node = std::make_shared<Node>();
  node->info.kind = NodeKind::dict;
  node->where = where;
  std::unordered_set<std::string> keys;
  for (const std::string& top : tops) {
    std::string key = unescape(top);
    if (!keys.insert(key).second) key = top;
    const Entry* found = find_entry(*context, rank, top);
    Node::Slot slot = found != nullptr && is_container(found->type)
                          ? std::make_shared<Part>(context, rank, top, key)
                          : slot_of_entry(context, rank, top, key);
    node->entries.push_back({std::move(key), std::move(slot)});
  }
  apply_root(context->manifest->find(rank), node->info, node->entries);
  return TensorDict(std::move(node));
}

/// The ranks that have entries, each with the parts of app_state that it has, in order.
struct Ranks {
  std::vector<std::pair<std::string, std::vector<std::string>>> ranks;
  std::unordered_map<std::string_view, std::size_t> positions;
  std::unordered_set<std::string_view> seen;

  void add(std::string_view path) {
    const std::size_t slash = path.find('/');
    if (slash == std::string_view::npos) return;
    const std::string_view rank = path.substr(0, slash);
    const auto [at, is_new] = positions.try_emplace(rank, ranks.size());
    if (is_new) ranks.emplace_back(rank, std::vector<std::string>());
    const std::size_t end = path.find('/', slash + 1);
    if (!seen.insert(path.substr(0, end)).second) return;
    ranks[at->second].second.emplace_back(
        path.substr(slash + 1, end == std::string_view::npos ? end : end - slash - 1));
  }
};

}  // namespace

TensorDict build_tree(std::shared_ptr<const Manifest> manifest, os::Directory root,
                      const std::string& where) {
  const auto context = std::make_shared<Context>();
  context->manifest = std::move(manifest);
  context->files = std::make_shared<Files>(std::move(root));
  context->where = where;
  Ranks ranks;
  for (const auto& [path, entry] : context->manifest->entries) {
    ranks.add(path);
    if (entry.type == EntryType::sharded_tensor || entry.type == EntryType::dtensor) {
      context->sharded[logical(path)].push_back(&entry);
    }
  }
  if (context->manifest->world_size == 1) {
    return rank_tree(context, "0",
                     ranks.ranks.empty() ? std::vector<std::string>() : ranks.ranks[0].second,
                     where);
  }
  auto node = std::make_shared<Node>();
  node->info.kind = NodeKind::dict;
  node->where = where;
  for (auto& [rank, tops] : ranks.ranks) {
    TensorDict tree = rank_tree(context, rank, tops, where + "/" + rank);
    node->entries.push_back({std::move(rank), std::move(tree)});
  }
  return TensorDict(std::move(node));
}

std::vector<std::string> unreachable(const Manifest& manifest) {
  std::vector<std::string> lost;
  std::unordered_set<std::string> named;
  for (const auto& [path, entry] : manifest.entries) {
    for (const Key& key : entry.keys) named.insert(path + "/" + escape(key.text));
  }
  for (const auto& [path, entry] : manifest.entries) {
    const std::size_t last = path.rfind('/');
    if (last != std::string::npos && last == path.find('/')) continue;  // a part of app_state
    if (named.contains(path) || (last == std::string::npos && is_container(entry.type))) continue;
    const Entry* parent =
        last == std::string::npos ? nullptr : manifest.find(std::string_view(path).substr(0, last));
    if (parent != nullptr && parent->type == EntryType::list) {
      const std::string number = path.substr(last + 1);
      const bool is_number = !number.empty() && number.size() < 10 &&
                             number.find_first_not_of("0123456789") == std::string::npos;
      const std::string before =
          path.substr(0, last + 1) + std::to_string(is_number ? std::stoll(number) - 1 : -2);
      if (number == "0" || manifest.find(before) != nullptr) continue;
    }
    lost.push_back(path);
  }
  return lost;
}

}  // namespace tenfold::detail::formats::snapshot
