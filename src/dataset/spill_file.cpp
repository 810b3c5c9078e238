#include "dataset/spill_file.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "core/tree/leaf_source.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/free_space.hpp"
#include "os/memory/mapping.hpp"
#include "os/process.hpp"

namespace tenfold {
namespace {

constexpr std::size_t kCopyBytes = std::size_t{1} << 20U;

Path folder_of(const Path& path) {
  if (!path.empty()) return path;
  std::error_code failure;
  Path folder = std::filesystem::temp_directory_path(failure);
  if (!failure) return folder;
  throw Error::io(failure.value(), "")
      .part("TMPDIR")
      .problem(failure.message())
      .expected("a folder for temporary files")
      .found("none");
}

/// Creates a file and removes its name at once, so that the file exists only while it is open. A
/// crash between the creation and the removal leaves an empty file.
os::File create_unnamed(const Path& path) {
  static std::atomic<std::uint64_t> count{0};
  os::Directory folder = os::Directory::open(folder_of(path));
  for (;;) {
    const std::string name = ".tenfold-spill-" + std::to_string(os::process_id()) + "-" +
                             std::to_string(count.fetch_add(1));
    try {
      constexpr std::uint32_t kOwnerOnly = 0600;
      os::File file = os::File::create_at(folder, name, kOwnerOnly);
      folder.remove_file(name);
      return file;
    } catch (const Error& error) {
      // Another process with this ID created the file, and crashed before it removed the name, or
      // runs in another PID namespace.
      if (error.system_errno() != EEXIST) throw;
    }
  }
}

class SpillSource final : public LeafSource {
 public:
  explicit SpillSource(std::shared_ptr<SpillFile> spill) : spill_(std::move(spill)) {}

  Buffer map(const Leaf& leaf) override {
    return os::map_file(spill_->file(), 0, leaf.nbytes(), os::MapKind::private_copy);
  }
  void read(const Leaf&, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    spill_->read(offset_bytes, into);
  }
  base::Where where(const Leaf&) const override { return spill_->file().display(); }

 private:
  std::shared_ptr<SpillFile> spill_;
};

}  // namespace

SpillFile::SpillFile(Path folder, std::size_t memory_bytes)
    : folder_(std::move(folder)), memory_bytes_(memory_bytes) {}

void SpillFile::require_space(std::uint64_t count, std::uint64_t item_bytes) const {
  const std::uint64_t needed =
      base::checked_mul(count, item_bytes).value_or(std::numeric_limits<std::uint64_t>::max());
  if (needed <= memory_bytes_) return;
  const os::Directory folder = os::Directory::open(folder_of(folder_));
  os::require_free_space(folder.fd(), folder.display(), needed);
}

void SpillFile::append(std::span<const std::byte> bytes) {
  if (gathered_.size() + bytes.size() > memory_bytes_) {
    if (!file_.valid()) file_ = create_unnamed(folder_);
    flush();
    if (bytes.size() > memory_bytes_) {
      file_.write_at(written_bytes_, bytes);
      written_bytes_ += bytes.size();
      return;
    }
  }
  gathered_.insert(gathered_.end(), bytes.begin(), bytes.end());
}

void SpillFile::append(const SpillFile& other) {
  std::vector<std::byte> piece(kCopyBytes);
  for (std::uint64_t at = 0; at < other.size_bytes(); at += piece.size()) {
    piece.resize(
        static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), other.size_bytes() - at)));
    other.read(at, piece);
    append(piece);
  }
}

void SpillFile::flush() {
  if (!file_.valid() || gathered_.empty()) return;
  file_.write_at(written_bytes_, gathered_);
  written_bytes_ += gathered_.size();
  gathered_.clear();
}

void SpillFile::read(std::uint64_t offset_bytes, std::span<std::byte> into) const {
  if (offset_bytes < written_bytes_ && !into.empty()) {
    const auto count = static_cast<std::size_t>(
        std::min<std::uint64_t>(into.size(), written_bytes_ - offset_bytes));
    file_.read_at(offset_bytes, into.first(count));
    into = into.subspan(count);
    offset_bytes += count;
  }
  if (into.empty()) return;
  std::memcpy(into.data(), gathered_.data() + (offset_bytes - written_bytes_), into.size());
}

Leaf leaf_of(std::shared_ptr<SpillFile> spill, DType dtype, Shape shape) {
  spill->flush();
  if (!spill->in_memory()) {
    return stored_leaf(dtype, std::move(shape), std::make_shared<SpillSource>(std::move(spill)), 0);
  }
  const std::span<const std::byte> bytes = spill->gathered();
  // The caller appends nothing after this call, so the tensor can use the bytes without a copy.
  const std::span<std::byte> own(const_cast<std::byte*>(bytes.data()), bytes.size());
  return Tensor(dtype, std::move(shape), Buffer(own, std::move(spill)));
}

}  // namespace tenfold
