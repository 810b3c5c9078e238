#include "formats/shared/folder_verify.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "formats/shared/boxes.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {
namespace {

constexpr std::size_t kOpenFiles = 64;

class ChecksumVerifier {
 public:
  ChecksumVerifier(const os::Directory& root, const VerifyRequest& request, VerifyReport& report,
                   bool is_growing)
      : root_(root), request_(request), report_(report), is_growing_(is_growing) {}

  void run() {
    std::vector<ChecksumLine> lines;
    const std::string name(kChecksumsName);
    try {
      const os::File file = os::File::try_open_read_at(root_, name);
      if (!file.valid()) return;
      lines = parse_checksums(file.read_all(kMaxChecksumsBytes), file.display());
    } catch (const Error& error) {
      return add(error, root_.display_of(name));
    }
    report_.num_checksums = lines.size();
    for (const Problem& problem : report_.problems) reported_.insert(problem.path);
    std::uint64_t total_bytes = 0;
    for (const ChecksumLine& line : lines) {
      total_bytes += line.box ? line.box->volume() : line.size_bytes;
    }
    Progress progress(request_.monitor, total_bytes, "verify");
    for (std::size_t begin = 0; begin < lines.size();) begin = check_files(lines, begin, progress);
    progress.finish();
  }

 private:
  void add(const Error& error, const std::string& path) {
    if (!is_problem_of_files(error)) throw error;
    report_.problems.push_back(problem_of(error, {path, "file"}));
  }

  /// Checks the lines of up to kOpenFiles files, starting at the line `begin`. Returns the index of
  /// the line after them.
  std::size_t check_files(const std::vector<ChecksumLine>& lines, std::size_t begin,
                          Progress& progress) {
    std::vector<std::unique_ptr<os::File>> files;
    std::vector<BlockCheck> blocks;
    std::vector<BoxedTensor> boxes;
    std::size_t at = begin;
    while (at < lines.size() && files.size() < kOpenFiles) {
      const std::size_t first = at;
      while (at < lines.size() && lines[at].path == lines[first].path) ++at;
      const std::string display = root_.display_of(lines[first].path);
      if (request_.skips(display)) continue;
      const auto of_file = std::span(lines).subspan(first, at - first);
      auto file = open_file(of_file);
      if (!file) continue;
      if (std::ranges::any_of(of_file,
                              [](const ChecksumLine& line) { return line.box != nullptr; })) {
        if (auto tensor = boxed_tensor(*file, of_file)) {
          tensor->skips = request_.skips_of(display);
          boxes.push_back(std::move(*tensor));
        }
        files.push_back(std::move(file));
        continue;
      }
      for (std::size_t i = first; i < at; ++i) {
        const std::uint64_t end = lines[i].offset_bytes + lines[i].size_bytes;
        if (request_.skips(display, lines[i].offset_bytes, end)) continue;
        const std::uint64_t block = lines[i].offset_bytes / base::kChecksumBlockBytes;
        blocks.push_back({file.get(), lines[i].offset_bytes, lines[i].size_bytes, lines[i].checksum,
                          "block " + std::to_string(block)});
      }
      files.push_back(std::move(file));
    }
    for (Problem& problem : check_blocks(blocks, request_.num_threads, progress)) {
      report_.problems.push_back(std::move(problem));
    }
    for (Problem& problem : check_boxes(std::move(boxes), request_.num_threads, progress)) {
      report_.problems.push_back(std::move(problem));
    }
    return at;
  }

  /// Returns the size of the file that a line implies: the exact size for a box, the minimum size
  /// for a block.
  static std::uint64_t expected_size(const ChecksumLine& line) {
    if (!line.box) return line.offset_bytes + line.size_bytes;
    std::uint64_t size = 1;
    for (const std::uint64_t length : line.box->shape) size *= length;
    return size;
  }

  /// Returns the boxes of a file, and its blocks as boxes. Reports a problem and returns nullopt if
  /// the boxes belong to arrays of different sizes.
  std::optional<BoxedTensor> boxed_tensor(const os::File& file,
                                          std::span<const ChecksumLine> lines) {
    BoxedTensor tensor{&file, 0, 0, "boxes", {}};
    for (const ChecksumLine& line : lines) {
      tensor.size_bytes = std::max(tensor.size_bytes, expected_size(line));
    }
    for (const ChecksumLine& line : lines) {
      if (line.box && expected_size(line) != tensor.size_bytes) {
        add(base::corrupt({file.display(), "boxes"})
                .expected("boxes of one array of ", tensor.size_bytes, " bytes")
                .found("a box of an array of ", expected_size(line), " bytes")
                .remedy("another tool may have changed the checksums"),
            file.display());
        return std::nullopt;
      }
      tensor.boxes.push_back(
          {line.box ? *line.box
                    : ByteBox{{tensor.size_bytes}, {line.offset_bytes}, {line.size_bytes}},
           line.checksum});
    }
    return tensor;
  }

  /// Reports a file that is longer than its checksums cover, unless files may grow. The checks of
  /// its blocks or boxes report a file that is too short.
  void check_size(const os::File& file, std::span<const ChecksumLine> lines) {
    std::uint64_t expected = 0;
    for (const ChecksumLine& line : lines) {
      expected = std::max(expected, expected_size(line));
    }
    const std::uint64_t found = file.size_bytes();
    if (found <= expected || is_growing_) return;
    add(base::corrupt({file.display(), "size"})
            .expected(expected, " bytes")
            .found(found)
            .remedy("the file was changed"),
        file.display());
  }

  /// Opens the file of these lines, and checks its size. If the file cannot be opened, returns null
  /// and reports the problem, unless an earlier check reported a problem of this file.
  std::unique_ptr<os::File> open_file(std::span<const ChecksumLine> lines) {
    const std::string_view path = lines.front().path;
    const std::string display = root_.display_of(std::string(path));
    try {
      auto file = std::make_unique<os::File>(open_below(root_, path));
      check_size(*file, lines);
      return file;
    } catch (const Error& error) {
      if (!reported_.insert(display).second) return nullptr;
      if (error.code() == ErrorCode::file_not_found) {
        add(base::corrupt(display).problem("is missing").expected("a file with checksums"),
            display);
      } else {
        add(error, display);
      }
      return nullptr;
    }
  }

  const os::Directory& root_;
  const VerifyRequest& request_;
  VerifyReport& report_;
  bool is_growing_;
  std::unordered_set<std::string> reported_;  ///< paths of files with a problem
};

/// Opens the folder that contains `path`, below `root`, and calls `open` with this folder and the
/// last component of `path`.
template <class Open>
os::File open_last(const os::Directory& root, std::string_view path, const Open& open) {
  os::Directory below;
  const os::Directory* folder = &root;
  for (std::size_t slash = path.find('/'); slash != std::string_view::npos;
       slash = path.find('/')) {
    os::Directory next = os::Directory::open_at(*folder, std::string(path.substr(0, slash)));
    below = std::move(next);
    folder = &below;
    path.remove_prefix(slash + 1);
  }
  return open(*folder, std::string(path));
}

}  // namespace

os::File open_below(const os::Directory& root, std::string_view path) {
  return open_last(root, path, os::File::open_read_at);
}

os::File open_below_to_write(const os::Directory& root, std::string_view path) {
  return open_last(root, path, os::File::open_read_write_at);
}

void check_folder_checksums(const os::Directory& root, const VerifyRequest& request,
                            VerifyReport& report, bool is_growing) {
  ChecksumVerifier(root, request, report, is_growing).run();
}

}  // namespace tenfold::detail::formats
