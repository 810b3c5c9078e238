// Arbitrary bytes as a meta.json. They are refused as corrupt or unsupported, or are parsed. The
// result survives a round trip if it describes a TensorDict without invalid entries.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>

#include "formats/folder/keys.hpp"
#include "formats/folder/meta/meta.hpp"

namespace {

using namespace tenfold;
using namespace tenfold::detail::formats::folder;

void require(bool fact) {
  if (!fact) std::abort();
}

/// Returns the meta.json that a save of this node writes.
std::string written_again(const NodeMeta& meta) {
  NodeInfo info;
  info.batch_size = meta.batch_size;
  info.names = meta.names;
  std::vector<MetaMember> members;
  for (const MetaEntry& entry : meta.entries) {
    MetaMember member;
    member.key = entry.key;
    member.node_type = entry.is_node ? "TensorDict" : "";
    member.dtype = entry.dtype;
    member.shape = &entry.shape;
    member.is_nested = entry.is_nested;
    members.push_back(member);
  }
  return tensordict_meta(info, members);
}

void check_again(const NodeMeta& meta) {
  const NodeMeta again = parse_meta(written_again(meta), "again");
  const bool names_kept =
      std::none_of(meta.entries.begin(), meta.entries.end(),
                   [](const MetaEntry& entry) { return entry.key == "_names"; });
  require(again.kind == MetaKind::tensordict && again.batch_size == meta.batch_size);
  if (names_kept && std::any_of(meta.names.begin(), meta.names.end(),
                                [](const auto& name) { return name.has_value(); })) {
    require(again.names == meta.names);
  }
  require(again.entries.size() == meta.entries.size());
  for (std::size_t i = 0; i < meta.entries.size(); ++i) {
    const MetaEntry& one = meta.entries[i];
    const MetaEntry& two = again.entries[i];
    require(one.key == two.key && one.is_node == two.is_node);
    if (one.is_node) continue;
    require(one.dtype == two.dtype && one.shape == two.shape && one.is_nested == two.is_nested &&
            one.size_bytes == two.size_bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const NodeMeta meta = parse_meta(text, "meta.json");
    bool good = meta.kind == MetaKind::tensordict;
    for (const MetaEntry& entry : meta.entries) {
      // The file name of every key is one component of a path, and decodes to the key.
      const std::string name = encode_key(entry.key);
      require(!name.empty() && name.find('/') == std::string::npos &&
              name.find('\0') == std::string::npos && name != "." && name != "..");
      require(decode_key(name) == entry.key);
      good = good && !entry.problem.has_value();
    }
    if (good) check_again(meta);
    static_cast<void>(parse_fields(text, "meta.json"));
  } catch (const Error& error) {
    require(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported);
  }
  return 0;
}
