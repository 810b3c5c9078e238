#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/npy_header.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/node.hpp"
#include "formats/format.hpp"
#include "formats/numpy/npy_array.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"
#include "os/memory/mapping.hpp"

// A .npy file contains one array, which has no name. Its tree is a bare root: one tensor instead of
// a dict.

namespace tenfold::detail::formats::numpy {
namespace {

constexpr std::array<std::string_view, 1> kSuffixes = {".npy"};

/// A file whose header matches its size.
struct OpenedNpy {
  os::File file;
  NpyArray array;
};

OpenedNpy open_npy(os::File file) {
  const std::uint64_t file_bytes = file.size_bytes();
  std::string bytes(codecs::kNpyPrefixBytes, '\0');
  bytes.resize(file.read_some_at(0, std::as_writable_bytes(std::span(bytes))));
  const std::uint64_t offset = codecs::npy_data_offset(bytes, file.display());
  bytes.resize(static_cast<std::size_t>(std::min(offset, file_bytes)));
  file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  NpyArray array = parse_npy_array(bytes, file_bytes, file.display());
  return {std::move(file), std::move(array)};
}

/// The array in one file. The file stays open, so that replacing the path does not affect the
/// array.
class NpySource final : public LeafSource {
 public:
  NpySource(OpenedNpy opened, Mode mode) : opened_(std::move(opened)), mode_(mode) {}

  Buffer map(const Leaf&) override { return bytes(); }
  /// Returns the stored bytes. They are mapped, or read into memory if the length of the header
  /// makes them unaligned. Throws Error(unsupported) for unaligned bytes in mode write_through.
  const Buffer& bytes() {
    std::call_once(mapped_, [this] {
      const NpyArray& array = opened_.array;
      if (array.nbytes == 0) return;
      const bool shared = mode_ == Mode::write_through;
      if (array.data_offset_bytes % itemsize(array.dtype) == 0) {
        bytes_ = os::map_file(opened_.file, array.data_offset_bytes, array.nbytes,
                              shared ? os::MapKind::shared_write : os::MapKind::private_copy);
        is_mapped_ = true;
        return;
      }
      if (shared) {
        throw base::unsupported(opened_.file.display())
            .part("data")
            .problem("is not aligned for a shared mapping")
            .expected("an offset that is a multiple of ", itemsize(array.dtype), " bytes")
            .found(array.data_offset_bytes)
            .remedy("save the array again, which aligns its data");
      }
      bytes_ = Buffer::allocate(static_cast<std::size_t>(array.nbytes));
      opened_.file.read_at(array.data_offset_bytes, bytes_.mutable_bytes());
      is_mapped_ = true;
    });
    return bytes_;
  }
  void read(const Leaf&, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    // In mode copy_on_write, the bytes in memory include writes of the program, which the file does
    // not have.
    if (mode_ == Mode::copy_on_write && is_mapped_) {
      std::memcpy(into.data(), bytes().data() + offset_bytes, into.size());
      return;
    }
    opened_.file.read_at(opened_.array.data_offset_bytes + offset_bytes, into);
  }
  bool is_one_mapping() const noexcept override { return true; }
  base::Where where(const Leaf&) const override { return opened_.file.display(); }
  void flush(Monitor*) override {
    if (mode_ == Mode::write_through && is_mapped_) {
      os::sync_mapping(bytes_, opened_.file.display());
    }
  }
  const NpyArray& array() const noexcept { return opened_.array; }

 private:
  OpenedNpy opened_;
  Mode mode_;
  std::once_flag mapped_;
  Buffer bytes_;
  std::atomic<bool> is_mapped_ = false;  ///< bytes_ is set, and does not change any more
};

/// Creates the leaf. A stored_leaf() is in C order, so an array in Fortran order becomes a strided
/// view of its bytes. Such an array is therefore mapped here, or read into memory if its elements
/// are unaligned.
Leaf leaf_of(const std::shared_ptr<NpySource>& source) {
  const NpyArray& array = source->array();
  if (!array.fortran_order) return stored_leaf(array.dtype, array.shape, source, 0);
  return Tensor(array.dtype, array.shape, fortran_strides(array.shape), source->bytes(), 0);
}

bool probe(const FileHead& head) { return head.head().starts_with(codecs::kNpyMagic); }

TensorDict open(const FileHead& head, const OpenRequest& request) {
  const Path& path = head.path();
  const bool shared = request.mode == Mode::write_through;
  OpenedNpy opened = open_npy(shared ? open_write_through(path) : os::File::open_read(path));
  const auto source = std::make_shared<NpySource>(std::move(opened), request.mode);
  if (shared && source->array().fortran_order) {
    throw base::unsupported(path.string())
        .part("fortran_order")
        .problem("an array in Fortran order cannot be changed in place")
        .expected("False")
        .found("True")
        .remedy("open it in mode \"c\"");
  }
  TensorDict tree = bare_tree(leaf_of(source));
  node_of(tree)->where = path.string();
  return tree;
}

/// Returns the tensor of a bare root. Throws Error(unsupported) for other trees, and like
/// npy_leaf_of_root().
Leaf only_leaf(const TensorDict& tree) {
  if (!is_bare(tree)) {
    throw base::unsupported()
        .part("root")
        .problem("a NumPy file holds one array, which has no name")
        .expected("a tensor")
        .found("a ", to_string(tree.kind()), " of length ", tree.size())
        .remedy("save each tensor as a separate file");
  }
  check_npy_root(tree.info());
  return npy_leaf_of_root(bare_value(tree));
}

void check(const TensorDict& tree) { only_leaf(tree); }

void write(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  const Leaf leaf = only_leaf(tree);
  const std::string head = npy_head_of(leaf);

  Progress progress(request.monitor, leaf.nbytes(), path.filename().string());
  FileReplacement replacement(path, leaf.nbytes(), OldFile::exclusive);
  std::vector<LeafWrite> writes = {{&leaf, &replacement.file(), head.size(), leaf.nbytes(), {}}};
  write_leaves(writes, BlockChecksum::none, request.num_threads, progress, request.durable);
  replacement.file().write_at(0, std::as_bytes(std::span(head)));
  replacement.publish(request.durable);
  progress.finish();
}

/// Checks only the header, and whether the size of the file matches it, because NumPy files have no
/// checksums.
VerifyReport verify(const Path& path, const VerifyRequest& request) {
  VerifyReport report;
  Progress progress(request.monitor, 0, path.filename().string());
  try {
    report.num_bytes = open_npy(os::File::open_read(path)).array.nbytes;
    report.num_leaves = 1;
  } catch (const Error& error) {
    add_problem(report, error, {path.string(), "file"});
  }
  progress.finish();
  return report;
}

}  // namespace

const Format kNpy = {
    .name = "npy",
    .noun = "a NumPy file",
    .suffixes = kSuffixes,
    .bare_roots = BareRoots::all,
    .is_writable_in_place = true,
    .probe = probe,
    .open_tree = open,
    .check_tree = check,
    .write_tree = write,
    .verify = verify,
};

}  // namespace tenfold::detail::formats::numpy
