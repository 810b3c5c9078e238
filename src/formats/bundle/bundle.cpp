// A folder that transformers' Trainer, accelerate, DeepSpeed or torch_checkpointing wrote, opened
// read-only as one tree. Each file or folder in it is an entry of the tree, whatever its format,
// except hidden files and folders, and shards that an index lists. An entry is read at its first
// access. folder.hpp recognises such folders, and lists their entries and keys.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/node.hpp"
#include "core/value/value_json.hpp"
#include "formats/bundle/folder.hpp"
#include "formats/format.hpp"
#include "formats/shared/folder_verify.hpp"
#include "formats/shared/hub_cache.hpp"
#include "formats/shared/object_file.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/progress.hpp"
#include "formats/shared/verify_filter.hpp"
#include "io/registry.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold::detail::formats::bundle {
namespace {

/// Maximum nesting depth of bundles. A bundle that contains no other bundle has depth 1. Bundles
/// nest because transformers' Trainer puts DeepSpeed's folder into its own.
constexpr std::size_t kMaxLevels = 3;
constexpr std::uint64_t kMaxJsonBytes = std::uint64_t{1} << 30;

/// How an entry can be read.
struct Reading {
  enum class Way : std::uint8_t { format, json, pickle, refused };
  Way way = Way::refused;
  const Format* format = nullptr;  ///< not null for Way::format
  std::string problem{};           ///< if refused, the reason: "<what>: expected ..., found ..."
};

/// Returns the message of `error`, without its leading path if that is `path`.
std::string problem_in(const Error& error, const Path& path) {
  return error.path() == path.string() ? Error(error).path("").what() : error.what();
}

Reading refused(std::string problem) {
  return {Reading::Way::refused, nullptr, std::move(problem)};
}

/// If `error` is that of format_of_content() for an unknown format, replaces the list of supported
/// formats, which does not help here, by "tensors or values".
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

bool begins_as_pickle(const os::File& file) {
  std::array<std::byte, 1> first{};
  return file.read_some_at(0, first) == 1 && first[0] == std::byte{0x80};
}

/// Determines how an entry can be read. A file "*.json" is JSON, unless it is an index
/// ("*.index.json"). For other files and for folders, calls format_of_content() (io/registry.hpp).
/// If that finds no format, an index is read as JSON, and a file "*.pkl" as a pickle if it begins
/// like one. Refuses all other entries, special files, and symbolic links except those that
/// is_cache_link() accepts. Throws Error(file_not_found) if the entry was removed, and what
/// Folder::path_of() and format_of_content() throw, except Error(unsupported).
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

/// Opens the folder as a tree: a dict whose entries are read at their first access. `level` is 0
/// for the bundle that the user opened, 1 for a bundle inside the bundle of level 0, and so on.
/// Throws Error(unsupported) if `level` is kMaxLevels or more, and what the constructor of Folder
/// and list_entries() throw.
TensorDict open_folder(const Path& path, const OpenRequest& request, std::size_t level);

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

/// Reads the entry `name` in the way that reading_of() has determined: as a file or folder of a
/// known format, as JSON, or as a pickle, which is parsed but not executed. Returns a node of kind
/// opaque (NodeInfo::is_refused()) for any other entry, and for data that is not supported. `level`
/// is that of the bundle that contains the entry. Throws Error(corrupt) for damaged data.
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

TensorDict open_folder(const Path& path, const OpenRequest& request, std::size_t level) {
  if (level >= kMaxLevels) {
    throw base::unsupported(path.string())
        .problem("folders of trainers are nested too deeply")
        .expected("at most ", kMaxLevels, " levels")
        .found("more")
        .remedy("open this folder directly");
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

bool probe(const FileHead& head) { return head.is_folder() && is_bundle(head.folder()); }

TensorDict open(const FileHead& head, const OpenRequest& request) {
  return open_folder(head.path(), request, 0);
}

class Verifier {
 public:
  Verifier(const Path& path, const VerifyRequest& request, std::size_t level)
      : folder_(std::make_shared<const Folder>(path)), request_(request), level_(level) {}

  VerifyReport run() {
    Progress progress(request_.monitor, 0, "verify");
    for (const Entry& entry : list_entries(folder_->directory())) {
      progress.poll();
      if (request_.filter != nullptr && !has_key(request_.filter->selected(), entry.key)) {
        continue;
      }
      try {
        check(entry);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::io) throw;
        report_.problems.push_back(
            problem_of(error, {folder_->directory().display_of(entry.name), "file"}));
      }
    }
    return std::move(report_);
  }

 private:
  void check(const Entry& entry) {
    const Reading reading = reading_of(*folder_, entry.name);
    const TensorDict::Item item = read_entry(folder_, entry.name, reading, {}, level_);
    const auto* node = std::get_if<TensorDict>(&item);
    const bool is_refused = node != nullptr && node->info().is_refused();
    if (reading.way != Reading::Way::format || is_refused) {
      report_.unchecked.push_back(entry.key);
      return;
    }
    const Path path = folder_->path_of(entry.name);
    const VerifyRequest request = request_for(entry);
    const VerifyReport found = reading.format == &kFormat
                                   ? Verifier(path, request, level_ + 1).run()
                                   : reading.format->verify(path, request);
    add_report(report_, found);
    for (const std::string& key : found.unchecked) {
      report_.unchecked.push_back(entry.key + "." + key);
    }
    if (found.num_checksums == 0 && found.unchecked.empty()) {
      report_.unchecked.push_back(entry.key);
    }
  }

  /// Returns the request for the verifier of an entry. The filter gets the node of the entry as its
  /// selected tree, because verifiers compare the keys of this tree with those of their own file.
  /// For an entry that is one tensor or value, the request has no filter: the entry is checked as a
  /// whole.
  VerifyRequest request_for(const Entry& entry) {
    VerifyRequest request = request_;
    if (request_.filter == nullptr) return request;
    const TensorDict::Item chosen = item_at_key(request_.filter->selected(), entry.key);
    const auto* node = std::get_if<TensorDict>(&chosen);
    if (node != nullptr && !filter_) filter_ = *request_.filter;
    if (node != nullptr) filter_->set_selected(*node);
    request.filter = node != nullptr ? &*filter_ : nullptr;
    return request;
  }

  std::shared_ptr<const Folder> folder_;
  const VerifyRequest& request_;
  std::optional<VerifyFilter> filter_;  ///< copy of request_.filter that request_for() changes
  std::size_t level_;
  VerifyReport report_;
};

VerifyReport verify(const Path& path, const VerifyRequest& request) {
  return Verifier(path, request, 0).run();
}

}  // namespace

const Format kFormat = {
    .name = "bundle",
    .noun = "a folder of a trainer",
    .suffixes = {},
    .holds_sparse = true,
    .probe = probe,
    .open_tree = open,
    .check_tree = nullptr,
    .write_tree = nullptr,
    .verify = verify,
};

}  // namespace tenfold::detail::formats::bundle
