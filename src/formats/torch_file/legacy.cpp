#include "formats/torch_file/legacy.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "codecs/pickle/pickle.hpp"
#include "formats/torch_file/storages.hpp"
#include "formats/torch_file/tensor.hpp"
#include "formats/torch_file/tree.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold::detail::formats::torch_file {

using codecs::PickleGraph;
using codecs::PickleKind;
using codecs::PickleNode;

namespace {

constexpr std::int64_t kProtocol = 1001;
constexpr std::uint64_t kCountBytes = 8;

struct LegacyExtent {
  std::string key;
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
};

class LegacyStorages final : public Storages {
 public:
  LegacyStorages(os::File file, std::vector<LegacyExtent> extents)
      : file_(std::move(file)),
        info_(file_.info()),
        extents_(std::move(extents)),
        copies_(extents_.size()) {
    for (std::size_t i = 0; i < extents_.size(); ++i) numbers_.emplace(extents_[i].key, i);
  }

  std::optional<std::size_t> find(std::string_view key) const override {
    const auto found = numbers_.find(key);
    if (found == numbers_.end()) return std::nullopt;
    return found->second;
  }
  std::uint64_t size_bytes(std::size_t storage) const override {
    return extents_[storage].size_bytes;
  }
  Buffer bytes(std::size_t storage) override {
    const std::lock_guard lock(mutex_);
    Buffer& copy = copies_[storage];
    if (copy.size_bytes() == extents_[storage].size_bytes) return copy;
    Buffer filled = Buffer::allocate(static_cast<std::size_t>(extents_[storage].size_bytes));
    file_.read_at(extents_[storage].begin, filled.bytes());
    copy = std::move(filled);
    return copy;
  }
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const StorageRange& range = range_of(leaf);
    file_.read_at(extents_[range.storage].begin + range.begin + offset_bytes, into);
  }
  void will_need(const Leaf& leaf) override {
    const StorageRange& range = range_of(leaf);
    file_.will_need(extents_[range.storage].begin + range.begin, range.size_bytes);
  }
  Identity identity(const Leaf& leaf) override {
    const StorageRange& range = range_of(leaf);
    if (range.size_bytes == 0) return {};
    return {.device = info_.device,
            .inode = info_.inode,
            .offset_bytes = extents_[range.storage].begin + range.begin,
            .size_bytes = range.size_bytes};
  }
  std::string where(const Leaf& leaf) const override {
    return file_.display() + ": storage " + base::quote(extents_[range_of(leaf).storage].key);
  }

 private:
  os::File file_;
  os::FileInfo info_;
  std::vector<LegacyExtent> extents_;
  std::unordered_map<std::string_view, std::size_t> numbers_;
  std::mutex mutex_;
  std::vector<Buffer> copies_;
};

[[noreturn]] void fail(const std::string& where, const std::string& what,
                       ErrorCode code = ErrorCode::corrupt) {
  throw Error(code, where + ": " + what);
}

/// The pickles at the front of a file, one after the other.
class Front {
 public:
  Front(std::string_view bytes, std::string where) : bytes_(bytes), where_(std::move(where)) {}

  PickleGraph next(const std::string& part) {
    PickleGraph graph = codecs::read_pickle(bytes_.substr(at_), where_ + ": " + part);
    at_ += static_cast<std::size_t>(graph.size_bytes);
    return graph;
  }
  std::uint64_t position() const noexcept { return at_; }

 private:
  std::string_view bytes_;
  std::string where_;
  std::size_t at_ = 0;
};

void check_machine(const PickleGraph& graph, const std::string& where) {
  const PickleNode about = graph.at(graph.root);
  if (about.kind == PickleKind::dict) {
    for (std::size_t i = 0; i + 1 < about.items.size(); i += 2) {
      const PickleNode value = graph.at(about.items[i + 1]);
      if (graph.at(about.items[i]).text != "little_endian") continue;
      if (value.kind == PickleKind::boolean && value.integer != 0) return;
      fail(where, "byte order: expected little-endian, found another", ErrorCode::unsupported);
    }
  }
  fail(where, "byte order: expected \"little_endian\" in a dict, found none");
}

/// The bytes of an element of each storage that the object names.
std::unordered_map<std::string, std::uint64_t> item_bytes_of(const Pickle& pickle) {
  std::unordered_map<std::string, std::uint64_t> sizes;
  for (const PickleNode& node : pickle.graph().nodes) {
    if (node.kind != PickleKind::persistent) continue;
    const PickleNode tuple = pickle.at(node.items[0]);
    if (tuple.kind != PickleKind::tuple || tuple.items.size() < 3) continue;
    const PickleNode type = pickle.at(tuple.items[1]);
    const auto key = pickle.text(tuple.items[2]);
    if (type.kind != PickleKind::global || !key) continue;
    const auto dtype = storage_dtype(type.text, type.name);
    sizes.try_emplace(std::string(*key), dtype ? itemsize(*dtype) : 1);
  }
  return sizes;
}

std::vector<LegacyExtent> extents_of(const os::File& file, const Pickle& object,
                                     const PickleGraph& keys, std::uint64_t at) {
  const std::string& where = file.display();
  const std::uint64_t file_bytes = file.size_bytes();
  const Pickle list(keys, where);
  const PickleNode root = keys.at(keys.root);
  if (root.kind != PickleKind::list) fail(where, "storage keys: expected a list, found none");
  const auto sizes = item_bytes_of(object);
  std::vector<LegacyExtent> extents;
  for (const std::uint32_t item : root.items) {
    const auto key = list.text(item);
    const auto known = key ? sizes.find(std::string(*key)) : sizes.end();
    if (known == sizes.end()) {
      fail(where, "storage keys: expected one that the object names, found " +
                      (key ? base::quote(*key) : list.describe(item)));
    }
    std::uint64_t count = 0;
    std::array<std::byte, kCountBytes> digits{};
    if (base::range_fits(at, kCountBytes, file_bytes)) {
      file.read_at(at, digits);
      std::memcpy(&count, digits.data(), sizeof(count));
      at += kCountBytes;
    } else {
      count = ~std::uint64_t{0};
    }
    const auto size_bytes = base::checked_mul(count, known->second);
    if (!size_bytes || !base::range_fits(at, *size_bytes, file_bytes)) {
      fail(where, "storage " + base::quote(*key) + ": does not fit the file: expected at most " +
                      std::to_string(file_bytes - at) + " bytes, found " +
                      (size_bytes ? std::to_string(*size_bytes) : std::string("more")) +
                      "; the file may be truncated");
    }
    extents.push_back({std::string(*key), at, *size_bytes});
    at += *size_bytes;
  }
  return extents;
}

}  // namespace

bool is_legacy_head(std::string_view head) noexcept {
  constexpr std::string_view kMagic("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 13);
  constexpr char kFrame = '\x95';  // with 8 bytes of a size, from protocol 4 on
  if (head.size() < 3 || head[0] != '\x80' || head[1] < 2 || head[1] > 5) return false;
  head.remove_prefix(2);
  if (head[0] == kFrame) head.remove_prefix(std::min<std::size_t>(9, head.size()));
  return head.starts_with(kMagic);
}

TensorDict open_legacy(os::File file, const std::string& key) {
  const std::string where = file.display();
  const Buffer front = os::map_file(file, 0, file.size_bytes(), os::MapKind::read_only);
  Front pickles({reinterpret_cast<const char*>(front.data()), front.size_bytes()}, where);
  pickles.next("magic number");
  const PickleGraph protocol = pickles.next("protocol");
  const PickleNode number = protocol.at(protocol.root);
  if (number.kind != PickleKind::integer || number.integer != kProtocol) {
    fail(where, "protocol: expected 1001, found another", ErrorCode::unsupported);
  }
  check_machine(pickles.next("machine"), where);
  const PickleGraph graph = pickles.next("object");
  const PickleGraph keys = pickles.next("storage keys");
  std::vector<LegacyExtent> extents =
      extents_of(file, Pickle(graph, where), keys, pickles.position());
  const auto storages = std::make_shared<LegacyStorages>(std::move(file), std::move(extents));
  return build_tree(graph, storages, where, key);
}

}  // namespace tenfold::detail::formats::torch_file
