#include "formats/numpy/npz_source.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "codecs/npy_header.hpp"
#include "codecs/zip/start.hpp"
#include "formats/shared/zip_inflate.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold::detail::formats::numpy {
namespace {

constexpr std::string_view kSuffix = ".npy";
/// Nearly all headers are shorter.
constexpr std::size_t kUsualHeaderBytes = 256;

/// A member that is no tensor: an error for whoever asks for it, and for nobody else.
class RefusedMember final : public LazyItem {
 public:
  explicit RefusedMember(std::string message) : message_(std::move(message)) {}
  TensorDict::Item load() override { throw Error(ErrorCode::unsupported, message_); }

 private:
  std::string message_;
};

/// The elements of an array in Fortran order, in C order.
Buffer in_c_order(const NpyArray& array, Buffer bytes) {
  const Tensor tensor =
      Tensor(array.dtype, array.shape, fortran_strides(array.shape), std::move(bytes), 0)
          .contiguous();
  return tensor.buffer();
}

}  // namespace

NpzSource::NpzSource(os::File file) : file_(std::move(file)) {
  directory_ = codecs::read_zip_directory(input(), codecs::ZipLimits());
  for (const codecs::ZipEntry& entry : directory_.entries) {
    if (entry.name.ends_with(kSuffix)) continue;
    throw Error(ErrorCode::unsupported,
                file_.display() + ": member " + base::quote(entry.name) +
                    ": not a NumPy file: expected a name that ends in \".npy\", found another");
  }
  members_ = std::make_unique<Member[]>(directory_.entries.size());
}

codecs::ZipInput NpzSource::input() const {
  return {file_.display(), file_.size_bytes(),
          [this](std::uint64_t offset, std::span<std::byte> into) { file_.read_at(offset, into); }};
}

std::string NpzSource::key_of(const codecs::ZipEntry& entry) {
  return entry.name.substr(0, entry.name.size() - kSuffix.size());
}

std::string NpzSource::where(std::size_t member) const {
  return file_.display() + ": member " + base::quote(entry(member).name);
}

std::string NpzSource::where(const Leaf& leaf) const {
  return where(static_cast<std::size_t>(leaf.position()));
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
      throw Error(ErrorCode::unsupported, where(member) + ": header: too long: expected at most " +
                                              std::to_string(codecs::kMaxZipStartBytes) +
                                              " bytes, found " + std::to_string(offset));
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
    return std::make_shared<RefusedMember>(error.what());
  }
  const codecs::ZipEntry& found = entry(position);
  const std::uint64_t begin = found.data_offset + member.array.data_offset_bytes;
  member.in_place =
      found.method == codecs::ZipMethod::stored && begin % itemsize(member.array.dtype) == 0;
  all_in_place_ = all_in_place_ && member.in_place;
  const NpyArray& array = member.array;
  if (member.in_place && array.fortran_order) {
    // A leaf on disk is in C order by its nature; this one is a strided view of the mapping.
    return Leaf(
        Tensor(array.dtype, array.shape, fortran_strides(array.shape), mapped(position), 0));
  }
  return Leaf(array.dtype, array.shape, shared_from_this(), position);
}

Buffer NpzSource::mapped(std::size_t position) {
  std::call_once(mapped_, [this] {
    mapping_ = os::map_file(file_, 0, file_.size_bytes(), os::MapKind::private_copy);
  });
  const NpyArray& array = members_[position].array;
  const std::uint64_t begin = entry(position).data_offset + array.data_offset_bytes;
  return mapping_.slice(static_cast<std::size_t>(begin), static_cast<std::size_t>(array.nbytes));
}

Buffer NpzSource::copied(std::size_t position) const {
  const codecs::ZipEntry& found = entry(position);
  const NpyArray& array = members_[position].array;
  Buffer bytes = Buffer::allocate(static_cast<std::size_t>(array.nbytes));
  if (found.method == codecs::ZipMethod::stored) {
    file_.read_at(found.data_offset + array.data_offset_bytes, bytes.bytes());
  } else {
    const Buffer inflated = read_entry_into_memory(
        input(), found, where(position), "unzip the archive, and open the .npy files in it");
    // What was inflated to read the header was the start of this.
    const NpyArray again =
        parse_npy_array({reinterpret_cast<const char*>(inflated.data()), inflated.size_bytes()},
                        inflated.size_bytes(), where(position));
    if (again.nbytes != array.nbytes || again.data_offset_bytes != array.data_offset_bytes) {
      throw Error(ErrorCode::corrupt, where(position) +
                                          ": header: expected the one that it had when it was "
                                          "opened, found another; the file was changed");
    }
    std::memcpy(bytes.data(), inflated.data() + array.data_offset_bytes, bytes.size_bytes());
  }
  return array.fortran_order ? in_c_order(array, std::move(bytes)) : bytes;
}

Buffer NpzSource::map(const Leaf& leaf) {
  const auto position = static_cast<std::size_t>(leaf.position());
  Member& member = members_[position];
  if (member.array.nbytes == 0) return {};
  if (member.in_place) return mapped(position);
  const std::lock_guard lock(member.mutex);
  if (member.copy.size_bytes() == 0) {
    member.copy = member.passing.size_bytes() > 0 ? member.passing : copied(position);
    member.passing = Buffer();
  }
  return member.copy;
}

void NpzSource::read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) {
  const auto position = static_cast<std::size_t>(leaf.position());
  Member& member = members_[position];
  const codecs::ZipEntry& found = entry(position);
  if (found.method == codecs::ZipMethod::stored && !member.array.fortran_order) {
    file_.read_at(found.data_offset + member.array.data_offset_bytes + offset_bytes, into);
    return;
  }
  // Read in pieces, from the first to the last: it is inflated once, and let go then.
  const std::lock_guard lock(member.mutex);
  Buffer bytes = member.copy;
  if (bytes.size_bytes() == 0 && member.array.nbytes > 0) {
    if (member.passing.size_bytes() == 0) member.passing = copied(position);
    bytes = member.passing;
    if (offset_bytes + into.size() == member.array.nbytes) member.passing = Buffer();
  }
  if (!into.empty()) std::memcpy(into.data(), bytes.data() + offset_bytes, into.size());
}

void NpzSource::will_need(const Leaf& leaf) {
  const codecs::ZipEntry& found = entry(static_cast<std::size_t>(leaf.position()));
  file_.will_need(found.data_offset, found.stored_bytes);
}

}  // namespace tenfold::detail::formats::numpy
