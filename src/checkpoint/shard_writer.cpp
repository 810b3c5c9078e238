#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/sharded_writer.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "checkpoint/shard_ticket.hpp"
#include "checkpoint/sharded_layout.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "formats/shared/boxes.hpp"
#include "formats/shared/folder_verify.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file_system.hpp"
#include "os/memory/mapping.hpp"
#include "os/process.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

using checkpoint::ShardReceipt;
using checkpoint::ShardTicket;
using checkpoint::TensorPlace;
using detail::formats::BlockChecksum;
using detail::formats::Box;
using detail::formats::BoxRuns;
using detail::formats::ByteBox;
using detail::formats::LeafWrite;

/// A part that is not contiguous in its file is copied into a mapping of the file if its contiguous
/// runs have fewer bytes than this, because a system call for each run would be slower. This
/// requires that the file's disk blocks are reserved.
constexpr std::uint64_t kCalledRunBytes = std::uint64_t{64} << 10;
/// Size of the pieces that are hashed and then written, so that a piece stays in the CPU cache.
constexpr std::size_t kShardPieceBytes = std::size_t{2} << 20;
/// In a durable save, writeback starts each time this many bytes of parts that are not contiguous
/// in their file have been written.
constexpr std::uint64_t kWritebackBytes = std::uint64_t{64} << 20;

/// Returns a view of the elements of the box `part`. `tensor`: the elements of the box `whole`,
/// which contains `part`.
Tensor view_of(const Tensor& tensor, const Box& whole, const Box& part) {
  std::uint64_t offset = tensor.offset_bytes();
  for (std::size_t d = 0; d < part.offsets.size(); ++d) {
    offset += static_cast<std::uint64_t>(part.offsets[d] - whole.offsets[d]) *
              static_cast<std::uint64_t>(tensor.strides()[d]) * tensor.itemsize();
  }
  return {tensor.dtype(), part.sizes, tensor.strides(), tensor.buffer(), offset};
}

}  // namespace

class ShardWriter::State {
 public:
  explicit State(std::string_view text)
      : ticket_(ShardTicket::parse(text)),
        sums_(ticket_.boxes.size()),
        is_written_(ticket_.boxes.size(), false) {
    open_staging();
  }

  std::size_t num_boxes() const noexcept { return ticket_.boxes.size(); }

  void write(std::size_t first, std::span<const Tensor> tensors, int num_threads,
             Monitor* monitor) {
    std::uint64_t total_bytes = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      require_fitting(first, i, tensors[i]);
      total_bytes += tensors[i].nbytes();
    }
    const int threads = threads_for(num_threads);
    detail::formats::Progress progress(monitor, total_bytes, "save");
    std::vector<Part> parts;
    for (std::size_t i = 0; i < tensors.size(); ++i) add_parts(first + i, tensors[i], parts);
    for (std::size_t begin = 0; begin < parts.size();) {
      const std::size_t end = open_files(parts, begin);
      write_parts(std::span(parts).subspan(begin, end - begin), threads, progress);
      begin = end;
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) is_written_[first + i] = true;
    progress.finish();
  }

  void add_values(const TensorDict& tree, int num_threads) {
    if (ticket_.values.empty()) {
      throw base::invalid_argument(ticket_.staging)
          .part("rank ", ticket_.rank)
          .problem("values with tensors cannot be passed")
          .expected("a save in the plain layout that accepts values")
          .found("a save that does not accept values");
    }
    static_cast<void>(checkpoint::outline_of(tree));  // refuses nodes that cannot be published
    require_marker(os::Directory::open(ticket_.values));
    save(tree, Path(ticket_.values) / checkpoint::values_name(ticket_.rank, ticket_.is_folder),
         {.durable = false, .num_threads = threads_for(num_threads)});
  }

  std::string finish() {
    ShardReceipt receipt{ticket_.id, ticket_.rank, ticket_.boxes.size(), {}};
    for (std::size_t i = 0; i < ticket_.boxes.size(); ++i) {
      if (!is_written_[i] && ticket_.boxes[i].is_written) {
        throw base::invalid_argument(ticket_.staging)
            .part("tensor ", place(i).key, ": box ", i, " of rank ", ticket_.rank)
            .expected("a box that was written")
            .found("one that was not written");
      }
      if (!ticket_.checksums) continue;
      receipt.checksums.insert(receipt.checksums.end(), sums_[i].begin(), sums_[i].end());
    }
    close_files();
    return receipt.to_text();
  }

 private:
  /// By default, each rank uses an equal share of the default number of threads, because all ranks
  /// may be on one host.
  int threads_for(int requested) const {
    const int threads = os::num_threads_for(requested);
    return requested > 0 ? threads : std::max(1, threads / ticket_.num_ranks);
  }

  const TensorPlace& place(std::size_t box) const {
    return ticket_.tensors[ticket_.boxes[box].tensor];
  }

  [[noreturn]] void refuse_staging(const std::string& found) const {
    throw Error::io(ENOENT, ticket_.staging)
        .part("rank ", ticket_.rank, " on host ", base::quote(os::host_name()))
        .expected("the files of the save that the coordinator on host ", base::quote(ticket_.host),
                  " has begun")
        .found(found)
        .remedy("all ranks must use the same shared folder, and a ticket is valid for one save");
  }

  /// Opens the staged file or folder and checks its marker.
  void open_staging() {
    try {
      if (ticket_.is_folder) {
        folder_ = os::Directory::open(ticket_.staging);
        require_marker(folder_);
        return;
      }
      os::File file = os::File::open_read_write(ticket_.staging);
      require_marker(file);
      if (ticket_.files.empty()) return;
      if (ticket_.files.front().path.empty()) {
        files_.emplace(0, std::move(file));
      } else {
        folder_ = os::Directory::open(Path(ticket_.staging).parent_path());
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::file_not_found) throw;
      refuse_staging("none");
    }
  }

  void require_marker(const os::Directory& folder) const {
    require_marker(os::File::open_read_at(folder, std::string(checkpoint::kStagingMarker)));
  }

  void require_marker(const os::File& file) const {
    require_coherent(file);
    if (!checkpoint::has_marker(file, ticket_.id)) refuse_staging("those of another save");
  }

  void require_coherent(const os::File& file) const {
    if (!ticket_.shares_files || ticket_.boot == checkpoint::boot_text() ||
        !os::loses_shared_pages(file)) {
      return;
    }
    throw base::unsupported(ticket_.staging)
        .part("rank ", ticket_.rank, " on host ", base::quote(os::host_name()))
        .problem("the coordinator is on host ", base::quote(ticket_.host))
        .expected(
            "one host, or a file system on which several hosts can write to one file (Lustre, ",
            "GPFS, Weka)")
        .found("NFS, 9p, SMB or FUSE, where one host can overwrite bytes of another host")
        .remedy(
            "use the layout \"shards\", which writes separate files, or run all ranks on one host");
  }

  void require_fitting(std::size_t first, std::size_t i, const Tensor& tensor) const {
    if (first > num_boxes() || i >= num_boxes() - first) {
      throw base::invalid_argument(ticket_.staging)
          .part("rank ", ticket_.rank)
          .expected(num_boxes(), " boxes")
          .found("more");
    }
    const TensorPlace& place = this->place(first + i);
    const Box& box = ticket_.boxes[first + i].box;
    const auto refuse = [&] {
      return base::invalid_argument(ticket_.staging)
          .part("tensor ", place.key, ": box ", first + i, " of rank ", ticket_.rank);
    };
    if (tensor.dtype() != place.dtype || tensor.shape() != box.sizes) {
      throw refuse()
          .expected(to_string(place.dtype), " of shape ", base::list_text(box.sizes))
          .found(to_string(tensor.dtype()), " of ", base::list_text(tensor.shape()));
    }
    if (is_written_[first + i]) {
      throw refuse().expected("a box that is not written yet").found("a written one");
    }
  }

  /// A part of a box. Each part has a checksum of its own.
  struct TENFOLD_LOCAL Part {
    const TensorPlace* place;
    ByteBox bytes;
    Leaf leaf;  ///< the elements of the part
    std::uint64_t* checksum;
  };

  void add_parts(std::size_t number, const Tensor& tensor, std::vector<Part>& parts) {
    const ShardTicket::Box& box = ticket_.boxes[number];
    if (!box.is_written || tensor.numel() == 0) return;
    const TensorPlace& place = this->place(number);
    const std::vector<Box> boxes =
        detail::formats::split_box(place.shape, itemsize(place.dtype), box.box);
    sums_[number].assign(boxes.size(), 0);
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      parts.push_back({&place,
                       *detail::formats::byte_box(place.shape, itemsize(place.dtype), boxes[i]),
                       Leaf(view_of(tensor, box.box, boxes[i])), &sums_[number][i]});
    }
  }

  /// Opens the files of the parts, starting at index `begin`, until os::num_files_to_keep_open()
  /// files are open. Returns the index of the first part whose file is not open.
  std::size_t open_files(const std::vector<Part>& parts, std::size_t begin) {
    std::size_t at = begin;
    for (; at < parts.size(); ++at) {
      const std::size_t number = parts[at].place->file;
      if (files_.contains(number)) continue;
      if (files_.size() >= os::num_files_to_keep_open()) {
        if (at > begin) break;
        close_files();
      }
      os::File file = detail::formats::open_below_to_write(folder_, ticket_.files[number].path);
      // Outside a staged folder, another save may have replaced the file by its own.
      if (!ticket_.is_folder) require_marker(file);
      files_.emplace(number, std::move(file));
    }
    return at;
  }

  BlockChecksum checksum_kind() const noexcept {
    if (!ticket_.checksums) return BlockChecksum::none;
    return ticket_.are_crc32 ? BlockChecksum::crc32 : BlockChecksum::xxh3;
  }

  /// Writes parts whose files are open. No part has more bytes than one checksum block.
  void write_parts(std::span<const Part> parts, int num_threads,
                   detail::formats::Progress& progress) {
    std::vector<LeafWrite> writes;
    std::vector<const Part*> contiguous;
    std::vector<const Part*> mapped;
    std::vector<const Part*> strided;
    for (const Part& part : parts) {
      if (part.bytes.is_contiguous()) {
        contiguous.push_back(&part);
        writes.push_back({&part.leaf,
                          &files_.at(part.place->file),
                          part.place->offset_bytes + part.bytes.begin(),
                          part.bytes.volume(),
                          {}});
        continue;
      }
      // A file without reserved blocks is not written through a mapping: a write to a hole raises
      // SIGBUS if the disk is full.
      const bool is_mapped =
          part.bytes.sizes.back() < kCalledRunBytes && ticket_.files[part.place->file].is_reserved;
      (is_mapped ? mapped : strided).push_back(&part);
    }
    write_leaves(writes, checksum_kind(), num_threads, progress, ticket_.durable);
    for (std::size_t i = 0; i < writes.size() && ticket_.checksums; ++i) {
      *contiguous[i]->checksum = writes[i].block_checksums.front();
    }
    os::parallel_for(
        mapped.size(), num_threads,
        [&](std::size_t i) { write_strided(*mapped[i], true, progress); },
        [&] { progress.poll(); });
    // One thread, because most file systems serialise writes to one file.
    for (const Part* part : strided) {
      write_strided(*part, false, progress);
      progress.poll();
    }
  }

  /// Writes a part that is not contiguous in its file.
  void write_strided(const Part& part, bool is_mapped, detail::formats::Progress& progress) {
    os::File& file = files_.at(part.place->file);
    const ByteBox& box = part.bytes;
    const std::uint64_t offset = part.place->offset_bytes;
    detail::formats::PieceChecksum checksum(checksum_kind(), box.volume());
    Buffer mapping;
    if (is_mapped) {
      mapping = os::map_file(file, offset + box.begin(), box.end() - box.begin(),
                             os::MapKind::shared_write);
    }
    const auto scratch = std::make_unique_for_overwrite<std::byte[]>(kShardPieceBytes);
    BoxRuns runs(box);
    std::uint64_t left = runs.size_bytes();
    for_each_piece(
        part.leaf, 0, box.volume(), {scratch.get(), kShardPieceBytes},
        [&](std::span<const std::byte> piece) {
          checksum.update(piece);
          while (!piece.empty()) {
            const auto some =
                piece.first(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), left)));
            const std::uint64_t at = runs.begin() + (runs.size_bytes() - left);
            if (is_mapped) {
              std::memcpy(mapping.mutable_data() + (at - box.begin()), some.data(), some.size());
            } else {
              file.write_at(offset + at, some);
            }
            piece = piece.subspan(some.size());
            left -= some.size();
            if (left > 0) continue;
            runs.next();
            left = runs.size_bytes();
          }
        });
    *part.checksum = checksum.value();
    progress.add(box.volume());
    if (ticket_.durable && (unsynced_bytes_ += box.volume()) >= kWritebackBytes) {
      unsynced_bytes_ = 0;
      file.start_writeback();
    }
  }

  /// Syncs (in a durable save) and closes the files. Uses the descriptors that wrote them, because
  /// the kernel need not report a writeback error to a descriptor that was opened after the error.
  void close_files() try {
    while (!files_.empty()) {
      const auto first = files_.begin();
      if (ticket_.durable) first->second.sync();
      os::File file = std::move(first->second);
      files_.erase(first);
      file.close_written();
    }
  } catch (...) {
    // The kernel reports a writeback error only once. A second sync would succeed although bytes
    // are lost, so all boxes must be written again.
    is_written_.assign(is_written_.size(), false);
    throw;
  }

  ShardTicket ticket_;
  os::Directory folder_;
  std::map<std::size_t, os::File> files_;  ///< the open files, by index
  std::vector<std::vector<std::uint64_t>> sums_;
  std::vector<bool> is_written_;
  /// Bytes of strided parts that were written since writeback was last started.
  std::atomic<std::uint64_t> unsynced_bytes_ = 0;
};

ShardWriter::ShardWriter(std::string_view ticket) : state_(std::make_unique<State>(ticket)) {}
ShardWriter::ShardWriter(ShardWriter&&) noexcept = default;
ShardWriter& ShardWriter::operator=(ShardWriter&&) noexcept = default;
ShardWriter::~ShardWriter() = default;

std::size_t ShardWriter::num_boxes() const noexcept { return state_->num_boxes(); }

void ShardWriter::write(std::size_t first, std::span<const Tensor> tensors, int num_threads,
                        Monitor* monitor) {
  state_->write(first, tensors, num_threads, monitor);
}

void ShardWriter::add_values(const TensorDict& tree, int num_threads) {
  state_->add_values(tree, num_threads);
}

std::string ShardWriter::finish() { return state_->finish(); }

}  // namespace tenfold
