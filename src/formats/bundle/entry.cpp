#include "formats/bundle/entry.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/node.hpp"
#include "core/value/value_json.hpp"
#include "formats/shared/hub_cache.hpp"
#include "formats/shared/object_file.hpp"
#include "io/registry.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold::detail::formats::bundle {
namespace {

constexpr std::uint64_t kMaxJsonBytes = std::uint64_t{1} << 30;

/// An error message without its leading path.
std::string problem_in(const Error& error, const Path& path) {
  return error.path() == path.string() ? Error(error).path("").what() : error.what();
}

Reading refused(std::string problem) {
  return {Reading::Way::refused, nullptr, std::move(problem)};
}

/// If `error` is that of format_of_content() for an unknown format, removes the list of supported
/// formats, which does not help here.
Error without_formats(const Error& error) {
  if (error.problem() != kUnknownFormat) return error;
  return Error(error).expected("tensors or values");
}

/// Describes an entry; for a symbolic link of a Hugging Face cache, describes the target. Returns
/// nullopt if the folder has no such entry.
std::optional<os::FileInfo> info_of(const Folder& folder, const std::string& name) {
  auto info = folder.directory().entry_info(name);
  if (!info || !info->is_symlink || !is_cache_link(folder.directory(), name)) return info;
  return os::file_info(folder.path_of(name));
}

os::File open_file(const Folder& folder, const std::string& name) {
  os::File file = open_shard(folder.directory(), name, folder.directory().display());
  if (!file.valid()) {
    throw base::file_not_found(folder.directory().display_of(name))
        .problem("no such file: it was there when the folder was listed");
  }
  return file;
}

/// The bytes of a file that cannot be read as tensors or values. A descriptor of the file is open
/// only during calls of map() and read(). Thread-safe.
class RawFile final : public LeafSource {
 public:
  RawFile(std::shared_ptr<const Folder> folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)) {}

  Buffer map(const Leaf& leaf) override {
    if (leaf.nbytes() == 0) return {};
    const std::lock_guard lock(mutex_);
    if (mapping_.size_bytes() == 0) {
      mapping_ =
          os::map_file(open_file(*folder_, name_), 0, leaf.nbytes(), os::MapKind::private_copy);
    }
    return mapping_;
  }
  void read(const Leaf&, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    open_file(*folder_, name_).read_at(offset_bytes, into);
  }
  base::Where where(const Leaf&) const override { return folder_->directory().display_of(name_); }

 private:
  std::shared_ptr<const Folder> folder_;
  std::string name_;
  std::mutex mutex_;
  Buffer mapping_;
};

bool begins_as_pickle(const os::File& file) {
  std::array<std::byte, 1> first{};
  return file.read_some_at(0, first) == 1 && first[0] == std::byte{0x80};
}

/// Returns the node for an entry that cannot be read. The node has the reason and, if the entry is
/// a regular file, the bytes of the file.
TensorDict refused_node(const std::shared_ptr<const Folder>& folder, const std::string& name,
                        std::string problem) {
  NodeInfo info;
  info.kind = NodeKind::opaque;
  info.class_name = kRefusedEntry;
  info.problem = std::move(problem);
  TensorDict node(std::move(info));
  node_of(node)->where = folder->directory().display_of(name);
  const auto found = info_of(*folder, name);
  if (found && found->is_regular) {
    node.set("bytes", stored_leaf(DType::uint8, {static_cast<std::int64_t>(found->size_bytes)},
                                  std::make_shared<RawFile>(folder, name), 0));
  }
  return node;
}

TensorDict::Item read(const Folder& folder, const std::string& name, const Reading& reading,
                      const OpenRequest& request, std::size_t level) {
  switch (reading.way) {
    case Reading::Way::json: {
      const os::File file = open_file(folder, name);
      return NonTensor{from_json(file.read_all(kMaxJsonBytes), file.display())};
    }
    case Reading::Way::pickle:
      return read_pickle_file(open_file(folder, name));
    case Reading::Way::format:
      break;
    case Reading::Way::refused:
      throw base::unsupported().problem(reading.problem);
  }
  const Path path = folder.path_of(name);
  if (reading.format == &kFormat) return open_folder(path, request, level + 1);
  return bare_value(reading.format->open(path, request));
}

class LazyEntry final : public LazyItem {
 public:
  LazyEntry(std::shared_ptr<const Folder> folder, std::string name, const OpenRequest& request,
            std::size_t level)
      : folder_(std::move(folder)), name_(std::move(name)), request_(request), level_(level) {}

  TensorDict::Item load() override {
    return read_entry(folder_, name_, reading_of(*folder_, name_), request_, level_);
  }

 private:
  std::shared_ptr<const Folder> folder_;
  std::string name_;
  OpenRequest request_;
  std::size_t level_;
};

}  // namespace

Reading reading_of(const Folder& folder, const std::string& name) {
  const auto info = info_of(folder, name);
  const Path path = folder.path_of(name);
  if (!info) {
    throw base::file_not_found(path.string())
        .problem("no such file or folder: it was there when the folder was listed");
  }
  if (info->is_symlink) {
    return refused(
        "a symbolic link, which is not followed: expected a file or folder, found a link to " +
        base::quote(folder.directory().read_link(name).value_or("")));
  }
  if (!info->is_regular && !info->is_directory) {
    return refused("expected a file or folder, found a device, socket or pipe");
  }
  const bool is_index = name.ends_with(".index.json");
  if (info->is_regular && name.ends_with(".json") && !is_index) return {Reading::Way::json};
  try {
    return {Reading::Way::format, format_of_content(path, {}).format};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    if (info->is_regular && is_index) return {Reading::Way::json};
    const bool is_pickle =
        info->is_regular && name.ends_with(".pkl") && begins_as_pickle(open_file(folder, name));
    if (is_pickle) return {Reading::Way::pickle};
    return refused(problem_in(without_formats(error), path));
  }
}

TensorDict::Item read_entry(const std::shared_ptr<const Folder>& folder, const std::string& name,
                            const Reading& reading, const OpenRequest& request, std::size_t level) {
  if (reading.way == Reading::Way::refused) return refused_node(folder, name, reading.problem);
  try {
    return read(*folder, name, reading, request, level);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return refused_node(folder, name, problem_in(error, folder->path_of(name)));
  }
}

TensorDict open_folder(const Path& path, const OpenRequest& request, std::size_t level) {
  if (level >= kMaxLevels) {
    throw base::unsupported(path.string())
        .problem("folders of trainers are nested too deep")
        .expected("at most ", kMaxLevels, " levels")
        .found("more")
        .remedy("open it by itself");
  }
  const auto folder = std::make_shared<const Folder>(path);
  NodeInfo info;
  info.kind = NodeKind::dict;
  TensorDict tree(std::move(info));
  Node& node = *node_of(tree);
  node.where = path.string();
  for (Entry& entry : list_entries(folder->directory())) {
    node.entries.push_back(
        {std::move(entry.key), std::make_shared<LazyEntry>(folder, entry.name, request, level)});
  }
  return tree;
}

}  // namespace tenfold::detail::formats::bundle
