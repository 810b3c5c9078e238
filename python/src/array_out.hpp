#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common.hpp"
#include "dataset/loader/buffer_pool.hpp"
#include "torch_api.hpp"

namespace tenfold::python {

/// The arrays of one opened or loaded tree by the address of their first byte, so that leaves
/// over the same bytes become one object, or views of one. An open-addressing table: a node for
/// each of many small tensors would cost as much as making them.
class Tied {
 public:
  Tied() = default;
  /// Torch tensors become `type` (MemoryMappedTensor); None: they stay plain. `file`: the
  /// MappedFile of all of them, or None: each has its own.
  Tied(nb::object type, nb::object file) : type_(std::move(type)), file_(std::move(file)) {}
  /// `framework`: of the arrays that are made, decided once.
  explicit Tied(Framework framework) : framework_(framework) {}

  Framework framework() const { return makes_mapped() ? Framework::torch : framework_; }

  bool makes_mapped() const { return type_.is_valid() && !type_.is_none(); }
  const nb::object& type() const noexcept { return type_; }
  const nb::object& file() const noexcept { return file_; }

  /// The array that starts at `address`, or an empty object.
  nb::handle find(const std::byte* address) const;
  /// Remembers `array`, unless another one starts there.
  void add(const std::byte* address, nb::handle array);

 private:
  struct Slot {
    const std::byte* address = nullptr;
    nb::object array;
  };
  std::size_t place_of(const std::byte* address) const;
  void grow();

  Framework framework_ = Framework::undecided;
  nb::object type_;
  nb::object file_;
  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

/// Which leaf a message is about: the file or folder, and the key.
struct LeafName {
  std::string_view where;
  std::string_view key;
  std::string text() const;
};

/// Makes torch tensors or numpy arrays, as the Tied or else the thread's scope decides, of the
/// engine's tensors without a copy: each array keeps its own Buffer, and so its file mapped.
class ArrayMaker {
 public:
  /// `place`: called with each new array, returns the one to hand out; or None.
  ArrayMaker(Mode mode, Tied& tied, nb::object place);

  /// `tensor` and `sizes` are those of `leaf`; `sizes` is looked at if it is nested.
  /// Throws OSError for pages that torch would crash on, Error(unsupported) for a dtype that
  /// numpy has not; `name` is the leaf, for the message.
  nb::object make(const Leaf& leaf, const Tensor& tensor, const LeafName& name);

 private:
  nb::object make_one(const Tensor& tensor, const LeafName& name) const;
  /// As a view of the torch tensor over all of its buffer, which is made if nobody has done it.
  nb::object make_view(const Tensor& tensor, const LeafName& name);
  nb::object make_numpy(const Tensor& tensor, const LeafName& name) const;
  void make_mapped(nb::object& made, const Leaf& leaf, const Tensor& tensor) const;
  nb::object with_grad(const Leaf& leaf, const nb::object& made) const;
  nb::object make_nested(const Leaf& leaf, const Tensor& tensor, const LeafName& name) const;

  Mode mode_;
  Tied& tied_;
  nb::object place_;
  bool use_torch_;
};

/// A plain torch tensor over `tensor`, without a copy. Throws as ArrayMaker::make.
nb::object torch_tensor_of(const Tensor& tensor, const std::string& name);

/// A torch tensor or a numpy array, as the thread's scope decides, over `tensor`, without a copy
/// and writable. Throws as ArrayMaker::make.
nb::object array_of(const Tensor& tensor, const std::string& name);

/// The same over a copy of contiguous elements, as soon as it can be: of small ones in one block of
/// memory with all that torch needs of us.
nb::object copy_array_of(DType dtype, const Shape& shape, const Shape& strides,
                         std::span<const std::byte> elements, const BufferPool& pool);

/// What a numpy array keeps: a Buffer behind Python's buffer protocol.
struct Bytes {
  Buffer buffer;
  bool writable = false;
};

void bind_bytes(nb::module_& module);

}  // namespace tenfold::python
