#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/zip/structure.hpp"
#include "codecs/zip/zip.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/dcp/leaf_source.hpp"
#include "formats/dcp/metadata.hpp"
#include "formats/dcp/tree.hpp"
#include "formats/format.hpp"
#include "formats/shared/dcp_manifest.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/thread/thread_pool.hpp"

// Folders of torch.distributed.checkpoint. The metadata is one pickle `.metadata`, or one pickle
// `__<rank>.metadata` for each rank. The pickles are read as data and never executed
// (metadata.hpp). Each file `__<rank>_<n>.distcp` contains files of torch.save, possibly compressed
// (leaf_source.hpp). The code in checkpoint/ writes such folders, with an additional manifest
// (shared/dcp_manifest.hpp).

namespace tenfold::detail::formats::dcp {
namespace {

constexpr std::array<std::string_view, 0> kSuffixes = {};
constexpr std::uint64_t kMaxMetadataBytes = std::uint64_t{1} << 30;
constexpr const char* kMetadata = ".metadata";

/// Returns the rank in the name `__<rank>.metadata`; nullopt for other names.
std::optional<std::uint64_t> rank_of(std::string_view name) {
  if (!name.starts_with("__") || !name.ends_with(kMetadata)) return std::nullopt;
  const std::string_view digits = name.substr(2, name.size() - 2 - std::string(kMetadata).size());
  std::uint64_t rank = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, rank);
  if (digits.empty() || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return rank;
}

Metadata metadata_in(const os::Directory& folder, const std::string& name) {
  const os::File file = os::File::open_read_at(folder, name);
  const std::string pickle = file.read_all(kMaxMetadataBytes);
  return parse_metadata(pickle, file.display());
}

/// Reads `.metadata`. If that file is missing, merges the metadata files of all ranks.
Metadata metadata_of(const os::Directory& folder) {
  if (folder.entry_info(kMetadata)) return metadata_in(folder, kMetadata);
  std::vector<std::pair<std::uint64_t, std::string>> ranks;
  for (const std::string& name : folder.list()) {
    if (const auto rank = rank_of(name)) ranks.emplace_back(*rank, name);
  }
  if (ranks.empty()) {
    throw base::corrupt(folder.display_of(kMetadata))
        .problem("missing")
        .expected("the metadata")
        .found("no such file");
  }
  std::ranges::sort(ranks);
  Merger merger;
  for (const auto& [rank, name] : ranks) {
    merger.add(metadata_in(folder, name), folder.display_of(name));
  }
  return merger.take();
}

bool probe(const FileHead& head) {
  if (!head.is_folder()) return false;
  const os::Directory& folder = head.folder();
  return folder.entry_info(kMetadata) || folder.entry_info("__0.metadata");
}

TensorDict tree_of(const Metadata& metadata, const std::optional<Manifest>& manifest,
                   const std::shared_ptr<Files>& files, const std::string& where) {
  if (manifest && manifest->layout == kTorchLayout) {
    return build_tree(metadata, *manifest, files, where);
  }
  return build_tree(metadata, files, where);
}

TensorDict open(const FileHead& head, const OpenRequest& /*request*/) {
  os::Directory folder = head.take_folder();
  const Metadata metadata = metadata_of(folder);
  const std::optional<Manifest> manifest = read_manifest(folder);
  auto files = std::make_shared<Files>(std::move(folder), metadata.files);
  return tree_of(metadata, manifest, files, head.path().string());
}

struct NamedItem {
  std::string name;
  Item item;
};

std::vector<NamedItem> items_of(const Metadata& metadata) {
  std::vector<NamedItem> items;
  for (const Entry& entry : metadata.entries) {
    if (const auto* tensor = std::get_if<TensorEntry>(&entry.what)) {
      for (const Chunk& chunk : tensor->chunks) items.push_back({entry.name, chunk.item});
    } else {
      items.push_back({entry.name, std::get<Item>(entry.what)});
    }
  }
  return items;
}

/// Verifies the CRC-32 of each record in the zip archive of the item, and the checksum of the
/// archive's structure, if it has one. Returns the number of records.
std::uint64_t check_item(Files& files, const Item& item) {
  const FilePart place = files.place(item);
  const std::shared_ptr<const os::File> file = place.file();  // keeps the file open
  const codecs::ZipInput input = zip_input(place);
  const codecs::ZipDirectory directory = codecs::read_zip_directory(input, codecs::ZipLimits());
  for (const codecs::ZipEntry& entry : directory.entries) codecs::check_zip_entry(input, entry);
  codecs::check_zip_structure(input, directory, "save the checkpoint again");
  return directory.entries.size();
}

/// Reads one byte of each item of the tensor, except items that the request skips. The read
/// compares the dtype and shape of the tensor in the item with the metadata.
void check_leaf(const Leaf& leaf, const VerifyRequest& request) {
  std::array<std::byte, 1> first{};
  const std::vector<Leaf> parts = source_of(leaf)->parts(leaf);
  for (const Leaf& part : parts) {
    if (!request.skips(source_of(part)->where(part).text())) part.read(0, first);
  }
  if (parts.empty()) leaf.read(0, first);
}

/// Reads every object of the tree, and compares every stored tensor that has bytes with the
/// metadata.
void check_tree(const TensorDict& tree, const VerifyRequest& request, VerifyReport& report) {
  tree.for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr) return;
    ++report.num_leaves;
    report.num_bytes += leaf->nbytes();
    if (leaf->nbytes() == 0 || leaf->in_memory()) return;
    try {
      check_leaf(*leaf, request);
    } catch (const Error& error) {
      add_problem(report, error, source_of(*leaf)->where(*leaf));
    }
  });
}

/// Checks the checksum of the manifest, if there is one, and the CRC-32s of the items, which are
/// zip archives. If there is no problem, also checks the tree.
VerifyReport verify(const Path& path, const VerifyRequest& request) {
  VerifyReport report;
  try {
    os::Directory folder = os::Directory::open(path);
    const Metadata metadata = metadata_of(folder);
    verify_manifest(folder, report);
    const std::optional<Manifest> manifest = read_manifest(folder);
    const auto files = std::make_shared<Files>(std::move(folder), metadata.files);
    const std::vector<NamedItem> items = items_of(metadata);
    std::uint64_t total_bytes = 0;
    for (const NamedItem& named : items) total_bytes += named.item.size_bytes;
    Progress progress(request.monitor, total_bytes, path.filename().string());
    std::mutex mutex;
    os::parallel_for(
        items.size(), os::num_threads_for(request.num_threads),
        [&](std::size_t i) {
          const auto& [name, item] = items[i];
          if (request.skips(files->where(item).at("key " + base::quote(name)).text())) return;
          try {
            const std::uint64_t num_checksums = check_item(*files, item);
            const std::lock_guard lock(mutex);
            report.num_checksums += num_checksums;
          } catch (const Error& error) {
            const std::lock_guard lock(mutex);
            add_problem(report, Error(error).within("key ", base::quote(name)), path);
          }
          progress.add(item.size_bytes);
        },
        [&] { progress.poll(); });
    if (report.ok()) {
      check_tree(request.filter == nullptr ? tree_of(metadata, manifest, files, path.string())
                                           : request.filter->selected(),
                 request, report);
    }
    progress.finish();
  } catch (const Error& error) {
    add_problem(report, error, {path.string(), "structure"});
  }
  std::ranges::sort(report.problems, {}, &Problem::part);
  return report;
}

}  // namespace

const Format kFormat = {
    .name = "dcp",
    .noun = "a checkpoint of torch.distributed",
    .suffixes = kSuffixes,
    .probe = probe,
    .open_tree = open,
    .check_tree = nullptr,
    .write_tree = nullptr,
    .verify = verify,
};

}  // namespace tenfold::detail::formats::dcp
