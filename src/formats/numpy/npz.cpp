// Several NumPy files in one zip archive, as numpy.savez writes them: a dict of tensors. A key is a
// member's name without ".npy", including folders of the archive ("a/b"). A bare root (a single
// tensor instead of a dict) is the member "arr_0.npy", as in numpy.savez, and is marked by the
// comment of that member. tenfold writes members without compression ("stored") and aligns their
// elements to 64 bytes, so that they can be mapped.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/npy_header.hpp"
#include "codecs/zip/entry_start.hpp"
#include "codecs/zip/structure.hpp"
#include "codecs/zip/zip.hpp"
#include "core/tree/aliases.hpp"
#include "core/tree/bare.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/node.hpp"
#include "formats/format.hpp"
#include "formats/numpy/npy_array.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/mapped_zip.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/progress.hpp"
#include "formats/shared/storable.hpp"
#include "formats/shared/zip_archive.hpp"
#include "formats/shared/zip_check.hpp"
#include "formats/shared/zip_inflate.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::numpy {
namespace {

/// The arrays of one archive. A leaf's position is the index of its member.
///
/// map() maps stored members with aligned elements, all through one mapping of the archive. It
/// copies all other members into memory: deflated members, and most members that numpy.savez
/// writes, because it does not align elements.
class NpzSource final : public LeafSource, public std::enable_shared_from_this<NpzSource> {
 public:
  /// Reads the zip directory. Throws like read_zip_directory(), and Error(unsupported) for members
  /// whose names do not end in ".npy".
  explicit NpzSource(os::File file);

  const codecs::ZipDirectory& directory() const noexcept { return directory_; }
  codecs::ZipInput input() const { return zip_.input(); }
  /// The key of a member: "a/b" for "a/b.npy".
  static std::string key_of(const codecs::ZipEntry& entry);

  /// Reads the header of a member. Returns a tensor or, for an array that is not supported, such as
  /// one of strings, an entry that throws Error(unsupported) when it is accessed. Throws
  /// Error(corrupt) for a damaged header.
  Node::Slot slot(std::size_t member);

  Buffer map(const Leaf& leaf) override;
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override;
  bool is_one_mapping() const noexcept override { return all_in_place_; }
  base::Where where(const Leaf& leaf) const override;
  base::Where where(std::size_t member) const;

 private:
  struct Member {
    NpyArray array;
    bool in_place = false;  ///< mapped rather than copied
  };

  const codecs::ZipEntry& entry(std::size_t member) const { return directory_.entries[member]; }
  NpyArray read_array(std::size_t member) const;
  Buffer mapped(std::size_t member);
  /// Returns a copy of the elements in C order.
  Buffer copied(std::size_t member) const;

  MappedZip zip_;
  codecs::ZipDirectory directory_;
  std::vector<Member> members_;
  bool all_in_place_ = true;
};

constexpr std::string_view kSuffix = ".npy";
/// Number of bytes at the start of each member that are read first. A usual header has 128 bytes.
constexpr std::size_t kUsualHeaderBytes = 256;

/// Copies the elements of an array in Fortran order to C order.
Buffer in_c_order(const NpyArray& array, Buffer bytes) {
  const Tensor tensor =
      Tensor(array.dtype, array.shape, fortran_strides(array.shape), std::move(bytes), 0)
          .contiguous();
  return tensor.buffer();
}

NpzSource::NpzSource(os::File file) : zip_(whole_file(std::move(file))) {
  directory_ = codecs::read_zip_directory(input(), codecs::ZipLimits());
  for (const codecs::ZipEntry& entry : directory_.entries) {
    if (entry.name.ends_with(kSuffix)) continue;
    throw base::unsupported(zip_.part().where)
        .part("member ", base::quote(entry.name))
        .problem("not a NumPy file")
        .expected("a name that ends in \".npy\"")
        .found("another");
  }
  members_.resize(directory_.entries.size());
}

std::string NpzSource::key_of(const codecs::ZipEntry& entry) {
  return entry.name.substr(0, entry.name.size() - kSuffix.size());
}

base::Where NpzSource::where(std::size_t member) const {
  return zip_.part().where.at("member " + base::quote(entry(member).name));
}

base::Where NpzSource::where(const Leaf& leaf) const {
  return where(static_cast<std::size_t>(position_of(leaf)));
}

NpyArray NpzSource::read_array(std::size_t member) const {
  const codecs::ZipEntry& found = entry(member);
  std::vector<std::byte> bytes = codecs::read_zip_entry_start(input(), found, kUsualHeaderBytes);
  const auto text = [&] {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const std::uint64_t offset = codecs::npy_data_offset(text(), where(member));
  if (offset > bytes.size() && bytes.size() < found.size_bytes) {
    if (offset > codecs::kMaxZipStartBytes) {
      throw base::unsupported(where(member))
          .part("header")
          .problem("too long")
          .expected("at most ", codecs::kMaxZipStartBytes, " bytes")
          .found(offset);
    }
    bytes = codecs::read_zip_entry_start(input(), found, static_cast<std::size_t>(offset));
  }
  return parse_npy_array(text(), found.size_bytes, where(member));
}

Node::Slot NpzSource::slot(std::size_t position) {
  Member& member = members_[position];
  try {
    member.array = read_array(position);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return std::make_shared<RefusedItem>(error);
  }
  const codecs::ZipEntry& found = entry(position);
  member.in_place =
      zip_.can_map(found, member.array.data_offset_bytes, itemsize(member.array.dtype));
  all_in_place_ = all_in_place_ && member.in_place;
  const NpyArray& array = member.array;
  if (member.in_place && array.fortran_order) {
    // The bytes of a stored_leaf() must be in C order. So a mapped array in Fortran order becomes a
    // strided view of the mapping instead.
    return Leaf(
        Tensor(array.dtype, array.shape, fortran_strides(array.shape), mapped(position), 0));
  }
  return stored_leaf(array.dtype, array.shape, shared_from_this(), position);
}

Buffer NpzSource::mapped(std::size_t position) {
  const NpyArray& array = members_[position].array;
  return zip_.map(entry(position).data_offset + array.data_offset_bytes, array.nbytes);
}

Buffer NpzSource::copied(std::size_t position) const {
  const codecs::ZipEntry& found = entry(position);
  const NpyArray& array = members_[position].array;
  Buffer bytes = Buffer::allocate(static_cast<std::size_t>(array.nbytes));
  if (found.method == codecs::ZipMethod::stored) {
    zip_.part().read_at(found.data_offset + array.data_offset_bytes, bytes.mutable_bytes());
  } else {
    const Buffer inflated = read_entry_into_memory(
        input(), found, where(position), "unzip the archive, and open the .npy files in it");
    // Compare with the header that was read at opening, because the file may have changed since.
    const NpyArray again =
        parse_npy_array({reinterpret_cast<const char*>(inflated.data()), inflated.size_bytes()},
                        inflated.size_bytes(), where(position));
    if (again.nbytes != array.nbytes || again.data_offset_bytes != array.data_offset_bytes) {
      throw base::corrupt(where(position))
          .part("header")
          .expected("the header that was read when the archive was opened")
          .found("another")
          .remedy("the file was changed; open it again");
    }
    std::memcpy(bytes.mutable_data(), inflated.data() + array.data_offset_bytes,
                bytes.size_bytes());
  }
  return array.fortran_order ? in_c_order(array, std::move(bytes)) : bytes;
}

Buffer NpzSource::map(const Leaf& leaf) {
  const auto position = static_cast<std::size_t>(position_of(leaf));
  if (members_[position].array.nbytes == 0) return {};
  if (members_[position].in_place) return mapped(position);
  return zip_.copy(position, [&] { return copied(position); });
}

void NpzSource::read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) {
  const auto position = static_cast<std::size_t>(position_of(leaf));
  const NpyArray& array = members_[position].array;
  const codecs::ZipEntry& found = entry(position);
  if (found.method == codecs::ZipMethod::stored && !array.fortran_order) {
    zip_.part().read_at(found.data_offset + array.data_offset_bytes + offset_bytes, into);
    return;
  }
  zip_.read_copy(position, offset_bytes, into, [&] { return copied(position); });
}

constexpr std::array<std::string_view, 1> kNpzSuffixes = {".npz"};
constexpr std::uint32_t kAlignment = 64;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kMaxNameBytes = 65'535;
/// Comment that marks the only member of a bare root.
constexpr std::string_view kBareComment = "tenfold_bare";

/// Checks the first member: torch files and archives of folders start with other members.
bool probe_npz(const FileHead& head) {
  constexpr std::string_view kEmptyArchive = "PK\x05\x06";
  // An archive without members, written by numpy.savez or, with a comment, by tenfold.
  if (head.head().starts_with(kEmptyArchive)) {
    const std::uint64_t size_bytes = head.info().size_bytes;
    return size_bytes == kEndBytes || size_bytes == kEndBytes + codecs::kZipStructureCommentBytes;
  }
  return head.first_zip_name().ends_with(".npy");
}

TensorDict tree_of(const std::shared_ptr<NpzSource>& source, const std::string& where) {
  auto node = std::make_shared<Node>();
  node->info.kind = NodeKind::dict;
  node->where = where;
  node->keep = source;
  const auto& entries = source->directory().entries;
  node->info.is_bare = entries.size() == 1 && entries[0].comment == kBareComment &&
                       NpzSource::key_of(entries[0]) == kBareNpzKey;
  node->entries.reserve(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    node->entries.push_back({NpzSource::key_of(entries[i]), source->slot(i)});
  }
  return tensordict_of(std::move(node));
}

TensorDict open_npz(const FileHead& head, const OpenRequest& /*request*/) {
  return tree_of(std::make_shared<NpzSource>(head.take_file()), head.path().string());
}

std::string member_name(const std::string& key) {
  std::string member = key + ".npy";
  if (const auto fault = codecs::zip_name_fault(member)) {
    throw refuse_key(key)
        .problem("a zip archive cannot have a member of this name: it ", *fault)
        .expected("a relative path in UTF-8")
        .found(base::quote(member));
  }
  if (member.size() > kMaxNameBytes) {
    throw refuse_key(key)
        .problem("its name is too long")
        .expected("at most ", kMaxNameBytes, " bytes")
        .found(member.size());
  }
  return member;
}

void check_root(const NodeInfo& info) {
  NodeInfo plain = info;
  if (plain.kind == NodeKind::ordered_dict) plain.kind = NodeKind::dict;  // order is kept
  check_npy_root(plain);
  if (info.int_keys || !info.typed_keys.empty()) {
    const bool ints = info.int_keys;
    throw base::unsupported()
        .part("root")
        .problem(ints ? "integer keys" : "keys that are not str", " cannot be stored")
        .expected("strings")
        .found((ints ? "integers" : "keys of other types"));
  }
}

ZipArchiveEntry bare_member(const TensorDict::Item& value) {
  const Leaf leaf = npy_leaf_of_root(value);
  ZipArchiveEntry member{member_name(std::string(kBareNpzKey)), npy_head_of(leaf), leaf,
                         kAlignment};
  member.comment = kBareComment;
  return member;
}

/// Returns the members for a tree. Throws Error(unsupported), naming the root or the first key that
/// cannot be stored.
std::vector<ZipArchiveEntry> members_of(const TensorDict& tree) {
  check_root(tree.info());
  if (is_bare(tree)) return {bare_member(bare_value(tree))};
  std::vector<ZipArchiveEntry> members;
  std::vector<std::string> keys;
  AliasFinder aliases;
  tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr) {
      const bool is_value = std::holds_alternative<NonTensor>(item);
      throw refuse_key(key)
          .problem("it cannot be stored")
          .expected("a tensor")
          .found((is_value ? "a JSON value" : "a node"))
          .remedy((is_value ? "" : "flatten_keys(\"/\") flattens a TensorDict"));
    }
    check_npy_leaf("key " + base::quote(key), *leaf);
    const std::size_t first = aliases.add(*leaf);
    if (first != keys.size()) {
      throw refuse_key(key)
          .problem("shared storage cannot be stored")
          .expected("a tensor with its own memory")
          .found("that of key ", base::quote(keys[first]))
          .remedy("store a copy of the tensor, or use another format");
    }
    keys.push_back(key);
    members.push_back({member_name(key), npy_head_of(*leaf), *leaf, kAlignment});
  });
  return members;
}

void check_npz(const TensorDict& tree) { members_of(tree); }

void write_npz(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  const std::vector<ZipArchiveEntry> members = members_of(tree);
  std::uint64_t total_bytes = 0;
  for (const ZipArchiveEntry& member : members) total_bytes += member.leaf->nbytes();
  Progress progress(request.monitor, total_bytes, path.filename().string());
  FileReplacement replacement(path, total_bytes);
  write_zip_archive(replacement.file(), members, request, progress);
  replacement.publish(request.durable);
  progress.finish();
}

void count_array(const Node::Slot& slot, VerifyReport& report) {
  if (const auto* lazy = std::get_if<std::shared_ptr<LazyItem>>(&slot)) (*lazy)->load();
  ++report.num_leaves;
  report.num_bytes += std::get<Leaf>(slot).nbytes();
}

/// Checks the archive's structure, the CRC-32 of every selected member, and whether the header of
/// each such member matches its size. Reports no problem for an intact member that is not
/// supported, such as an array of strings.
VerifyReport verify_npz(const Path& path, const VerifyRequest& request) {
  VerifyReport report;
  Progress progress(request.monitor, os::file_info(path).size_bytes, path.filename().string());
  try {
    const auto source = std::make_shared<NpzSource>(os::File::open_read(path));
    const auto& entries = source->directory().entries;
    const auto position = [&](const codecs::ZipEntry& entry) {
      return static_cast<std::size_t>(&entry - entries.data());
    };
    // VerifyFilter::skips() would not skip an unselected member that is not a tensor, and
    // VerifyFilter::wants() would omit mapped arrays in Fortran order. So compare the key of the
    // member with the selected keys.
    const auto is_wanted = [&](const codecs::ZipEntry& entry) {
      return request.filter == nullptr ||
             has_key(request.filter->selected(), NpzSource::key_of(entry));
    };
    const auto count = [&](const codecs::ZipEntry& entry) {
      try {
        count_array(source->slot(position(entry)), report);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::unsupported) throw;
      }
    };
    verify_zip(
        source->input(), source->directory(),
        {.where = [&](const codecs::ZipEntry& entry) { return source->where(position(entry)); },
         .is_wanted = is_wanted,
         .use = count},
        request.num_threads, progress, report);
  } catch (const Error& error) {
    add_problem(report, error, {path.string(), "directory"});
  }
  progress.finish();
  return report;
}

}  // namespace

const Format kNpz = {
    .name = "npz",
    .noun = "an archive of NumPy files",
    .suffixes = kNpzSuffixes,
    .bare_roots = BareRoots::some,
    .probe = probe_npz,
    .open_tree = open_npz,
    .check_tree = check_npz,
    .write_tree = write_npz,
    .verify = verify_npz,
};

}  // namespace tenfold::detail::formats::numpy
