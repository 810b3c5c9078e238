#include "formats/memmap_verify.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/checksum.hpp"
#include "core/node.hpp"
#include "formats/leaf_writer.hpp"
#include "formats/memmap_checksums.hpp"
#include "formats/memmap_keys.hpp"
#include "formats/memmap_reader.hpp"
#include "formats/memmap_source.hpp"
#include "formats/progress.hpp"
#include "os/directory.hpp"

namespace tenfold::memmap_folder {
namespace {

constexpr std::size_t kOpenFiles = 64;

/// A message "<path>: <part>: <what>" in its pieces; `path` is used where it does not begin so.
Problem problem_of(const Error& error, const std::string& path) {
  std::string_view text = error.what();
  Problem problem{path, "", ""};
  const std::size_t end_of_path = text.find(": ");
  if (end_of_path != std::string_view::npos && text.substr(0, end_of_path).starts_with(path)) {
    problem.path = text.substr(0, end_of_path);
    text.remove_prefix(end_of_path + 2);
  }
  const std::size_t end_of_part = text.find(": ");
  const std::size_t from = end_of_part == std::string_view::npos ? 0 : end_of_part + 2;
  problem.part = from == 0 ? "file" : text.substr(0, end_of_part);
  problem.what = text.substr(from);
  return problem;
}

class Verifier {
 public:
  Verifier(const Path& path, const VerifyRequest& request)
      : path_(path), root_(os::Directory::open(path)), request_(request) {}

  VerifyReport run() {
    check_structure();
    check_checksums();
    return std::move(report_);
  }

 private:
  void add(const Error& error, const std::string& path) {
    // The system's failure to read at all says nothing about the data, unless it is one file's.
    if (error.code() == ErrorCode::io && error.system_errno() == ECANCELED) throw error;
    report_.problems.push_back(problem_of(error, path));
  }

  void check_structure() {
    try {
      const TensorDict tree = open_tree(root_.duplicate(), path_, Mode::read, &report_.problems);
      check_node(*tree.node());
    } catch (const Error& error) {
      add(error, root_.display());
    }
  }

  void check_node(Node& node) {
    for (std::size_t i = 0; i < node.entries.size(); ++i) {
      if (request_.monitor != nullptr) structure_progress_.poll();
      try {
        const TensorDict::Item item = node.item(i);
        if (const auto* leaf = std::get_if<Leaf>(&item)) {
          ++report_.num_leaves;
          if (auto* source = dynamic_cast<FolderSource*>(leaf->source().get())) {
            report_.num_bytes += source->check(*leaf);
          }
        } else if (const auto* child = std::get_if<TensorDict>(&item)) {
          check_node(*child->node());
        }
      } catch (const Error& error) {
        add(error, node.where);
      }
    }
  }

  void check_checksums() {
    std::vector<ChecksumLine> lines;
    try {
      const os::File file = os::File::try_open_read_at(root_, std::string(kChecksumsName));
      if (!file.valid()) return;
      lines = parse_checksums(file.read_all(kMaxChecksumsBytes), file.display());
    } catch (const Error& error) {
      return add(error, root_.display_of(std::string(kChecksumsName)));
    }
    report_.num_checksums = lines.size();
    std::uint64_t total_bytes = 0;
    for (const ChecksumLine& line : lines) total_bytes += line.size_bytes;
    Progress progress(request_.monitor, total_bytes, "verify");
    for (std::size_t begin = 0; begin < lines.size();) begin = check_files(lines, begin, progress);
    progress.finish();
  }

  /// Checks the lines from `begin` that belong to the next few files; returns where the rest is.
  std::size_t check_files(const std::vector<ChecksumLine>& lines, std::size_t begin,
                          Progress& progress) {
    std::vector<std::unique_ptr<os::File>> files;
    std::vector<BlockCheck> blocks;
    std::size_t at = begin;
    while (at < lines.size() && files.size() < kOpenFiles) {
      const std::size_t first = at;
      while (at < lines.size() && lines[at].path == lines[first].path) ++at;
      auto file = open_file(lines[first].path);
      if (!file) continue;
      check_size(*file, std::span(lines).subspan(first, at - first));
      for (std::size_t i = first; i < at; ++i) {
        const std::uint64_t block = lines[i].offset_bytes / base::kChecksumBlockBytes;
        blocks.push_back({file.get(), lines[i].offset_bytes, lines[i].size_bytes, lines[i].checksum,
                          "block " + std::to_string(block)});
      }
      files.push_back(std::move(file));
    }
    for (Problem& problem : check_blocks(blocks, request_.num_threads, progress)) {
      report_.problems.push_back(std::move(problem));
    }
    return at;
  }

  /// A file that is too short is found by its last block.
  void check_size(const os::File& file, std::span<const ChecksumLine> lines) {
    std::uint64_t expected = 0;
    for (const ChecksumLine& line : lines) {
      expected = std::max(expected, line.offset_bytes + line.size_bytes);
    }
    const std::uint64_t found = file.size_bytes();
    if (found <= expected) return;
    report_.problems.push_back({file.display(), "size",
                                "expected " + std::to_string(expected) + " bytes, found " +
                                    std::to_string(found) + "; the file was changed"});
  }

  /// The file that a line names, opened part by part; null, with a problem reported, if it cannot
  /// be.
  std::unique_ptr<os::File> open_file(std::string_view path) {
    const std::string display = root_.display_of(std::string(path));
    try {
      os::Directory below;
      const os::Directory* folder = &root_;
      for (std::size_t slash = path.find('/'); slash != std::string_view::npos;
           slash = path.find('/')) {
        os::Directory next = os::Directory::open_at(*folder, std::string(path.substr(0, slash)));
        below = std::move(next);
        folder = &below;
        path.remove_prefix(slash + 1);
      }
      return std::make_unique<os::File>(os::File::open_read_at(*folder, std::string(path)));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::file_not_found) {
        report_.problems.push_back({display, "file", "is missing: expected a file with checksums"});
      } else {
        add(error, display);
      }
      return nullptr;
    }
  }

  Path path_;
  os::Directory root_;
  const VerifyRequest& request_;
  Progress structure_progress_{request_.monitor, 0, "verify"};
  VerifyReport report_;
};

}  // namespace

VerifyReport verify_folder(const Path& path, const VerifyRequest& request) {
  return Verifier(path, request).run();
}

}  // namespace tenfold::memmap_folder
