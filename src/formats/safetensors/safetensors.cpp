#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "formats/format.hpp"
#include "formats/safetensors/file.hpp"
#include "formats/safetensors/leaf_source.hpp"
#include "formats/safetensors/tree.hpp"
#include "formats/shared/commit.hpp"

// The format of a single safetensors file. The parts of this folder:
//   header       parses and validates the header; header_writer writes it
//   plan         converts a tree to tensors, names and metadata
//   tree         converts header and structure document to a tree of lazy leaves
//   stack        lazy stacks, which are stored as stacked tensors
//   leaf_source  one mapping of the file's data
//   file         writes one file; verifies files
//   sharded      several files and their index; shard_transaction replaces these files
//   dcp          the files of torch.distributed.checkpoint

namespace tenfold::detail::formats::safetensors {
namespace {

constexpr std::array<std::string_view, 1> kSuffixes = {".safetensors"};

bool probe(const FileHead& head) {
  // The length of the header (eight bytes; the format's limit is below 2^27), then JSON.
  const std::string_view bytes = head.head().substr(0, 64);
  if (bytes.size() < 10 || bytes.substr(4, 4) != std::string_view("\0\0\0\0", 4)) return false;
  const std::string_view text = bytes.substr(8);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

/// Builds the tree. Moves the index of names out of the header, which no longer needs it.
TensorDict tree_of(const OpenedFile& opened) {
  TensorEntries tensors;
  tensors.files.push_back({opened.header, opened.source});
  tensors.rows.reserve(opened.header->entries.size());
  for (std::uint32_t i = 0; i < opened.header->entries.size(); ++i) tensors.rows.push_back({0, i});
  tensors.index = std::move(opened.header->index);
  return build_tree(std::move(tensors), opened.header->metadata, opened.source->file().display());
}

TensorDict open(const FileHead& head, const OpenRequest& /*request*/) {
  return tree_of(open_file(head.take_file()));
}

void check(const TensorDict& tree) {
  const FilePlan file = plan_file(tree, true);
  Metadata metadata = file.plan.metadata;
  metadata.insert_or_assign(std::string(kChecksumsMember), blank_checksums(file.tensors));
  header_of(file.tensors, metadata);
}

/// Makes `path` a hard link to the file of the earlier version, if that file equals the file to
/// write. Returns false if the earlier file differs or is missing, if `path` exists, or if the link
/// cannot be made.
bool link_earlier(const FilePlan& file, const Path& path, const WriteRequest& request,
                  Progress& progress) {
  const EarlierVersion& earlier = *request.earlier;
  const os::File saved = os::File::try_open_read_at(earlier.folder, earlier.name);
  if (!saved.valid() || !is_saved_as(saved, file, request.num_threads, progress)) return false;
  os::Parent parent = os::open_parent(path, true);
  if (parent.directory.entry_info(parent.name)) return false;
  os::File linked = link_unchanged(parent.directory, parent.name, earlier, earlier.folder,
                                   earlier.name, saved.size_bytes());
  if (!linked.valid()) return false;
  if (request.durable) {
    if (!earlier.is_synced) linked.sync();
    parent.directory.sync();
  }
  return true;
}

void write(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  const FilePlan file = plan_file(tree, request.notes);
  std::uint64_t total_bytes = 0;
  for (const auto* tensor : file.tensors) total_bytes += tensor->leaf.nbytes();
  Progress progress(request.monitor, total_bytes, path.filename().string());
  if (request.earlier != nullptr && request.checksums &&
      link_earlier(file, path, request, progress)) {
    return progress.finish();
  }
  FileReplacement replacement(path, total_bytes);
  write_file(replacement.file(), file.tensors, file.plan.metadata, request, progress);
  replacement.publish(request.durable);
  progress.finish();
}

VerifyReport verify(const Path& path, const VerifyRequest& request) {
  return verify_file(path, request, [&](VerifyReport&) {
    std::vector<OpenedFile> files;
    files.push_back(open_file(os::File::open_read(path)));
    tree_of(files.front());  // checks that the structure matches the tensors
    return files;
  });
}

}  // namespace

const Format kFormat = {
    .name = "safetensors",
    .noun = "a safetensors file",
    .suffixes = kSuffixes,
    .bare_roots = BareRoots::some,
    .probe = probe,
    .open_tree = open,
    .check_tree = check,
    .write_tree = write,
    .verify = verify,
};

}  // namespace tenfold::detail::formats::safetensors
