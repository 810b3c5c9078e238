#include <ostream>
#include <string>
#include <variant>

#include <tenfold/tensordict.hpp>

#include "base/text.hpp"
#include "core/tree/node.hpp"

namespace tenfold {
namespace {

/// Limits of the output: entries of a node, lines of entries, levels of nodes below the root, and
/// bytes of a key or value. The output is for people, and a node may contain itself.
constexpr std::size_t kMaxEntries = 20;
constexpr std::size_t kMaxLines = 200;
constexpr std::size_t kMaxLevels = 16;
constexpr std::size_t kMaxValueBytes = 60;

class TreeWriter {
 public:
  explicit TreeWriter(std::ostream& out) : out_(out) {}

  void write(const TensorDict& node, std::size_t depth) {
    write_head(node);
    if (depth == kMaxLevels && !node.empty()) {
      out_ << " ...";
      return;
    }
    for (std::size_t i = 0; i < node.size(); ++i) {
      out_ << '\n' << std::string(2 * (depth + 1), ' ');
      if (i == kMaxEntries || ++lines_ > kMaxLines) {
        out_ << "... " << node.size() - i << " more";
        return;
      }
      write_entry(node_of(node)->entries[i].key, node_of(node)->item(i), depth);
    }
  }

 private:
  void write_head(const TensorDict& node) {
    out_ << node.kind();
    const NodeInfo& info = node.info();
    if (info.kind == NodeKind::tensordict || info.kind == NodeKind::tensorclass) {
      out_ << ' ' << base::list_text(info.batch_size);
    }
    if (info.kind == NodeKind::sparse) {
      out_ << ' ' << info.layout << ' ' << base::list_text(info.dense_shape);
    }
    if (!info.class_name.empty()) out_ << ' ' << base::quote(info.class_name, kMaxValueBytes);
  }

  void write_entry(const std::string& key, const TensorDict::Item& item, std::size_t depth) {
    out_ << printable(key) << ": ";
    if (const auto* child = std::get_if<TensorDict>(&item)) {
      write(*child, depth + 1);
    } else if (const auto* leaf = std::get_if<Leaf>(&item)) {
      out_ << leaf->dtype() << (leaf->is_nested() ? " nested " : " ")
           << base::list_text(leaf->shape());
    } else {
      const std::string text = to_json(std::get<NonTensor>(item).value);
      out_ << (text.size() <= kMaxValueBytes ? text : text.substr(0, kMaxValueBytes) + "...");
    }
  }

  /// Quotes a key that is too long, or that contains characters which quote() escapes, such as
  /// control characters, which a terminal would execute.
  static std::string printable(const std::string& key) {
    std::string quoted = base::quote(key, kMaxValueBytes);
    const std::string_view inner(quoted.data() + 1, quoted.size() - 2);
    return inner == key ? key : quoted;
  }

  std::ostream& out_;
  std::size_t lines_ = 0;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const TensorDict& tree) {
  TreeWriter(out).write(tree, 0);
  return out;
}

}  // namespace tenfold
