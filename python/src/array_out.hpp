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

/// A table of the arrays of one opened or loaded tree, keyed by the address of their first byte.
/// With this table, leaves that share bytes become the same array or views of it. It uses open
/// addressing, because allocating a node for each of many small tensors would take as long as
/// creating the tensors.
class Tied {
 public:
  Tied() = default;
  /// `type`: the class of new torch tensors (MemoryMappedTensor), or None for plain tensors.
  /// `file`: the MappedFile that all tensors share, or None if each mapped leaf has its own file.
  Tied(nb::object type, nb::object file) : type_(std::move(type)), file_(std::move(file)) {}
  /// `framework`: the framework of all new arrays. If undecided, framework_scope() determines it.
  explicit Tied(Framework framework) : framework_(framework) {}

  Framework framework() const { return makes_mapped() ? Framework::torch : framework_; }

  bool makes_mapped() const { return type_.is_valid() && !type_.is_none(); }
  const nb::object& type() const noexcept { return type_; }
  const nb::object& file() const noexcept { return file_; }

  /// The array that starts at `address`, or a null handle.
  nb::handle find(const std::byte* address) const;
  /// Adds `array`, unless the table already has an array that starts at `address`.
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

/// Identifies a leaf in messages: the file or folder, and the key.
struct LeafName {
  std::string_view where;
  std::string_view key;
  std::string text() const;
};

/// Creates torch tensors or numpy arrays from tensors of the engine without a copy. The framework
/// is that of `tied` or, if that is undecided, the framework of the current thread
/// (framework_scope()). Each array keeps its Buffer alive, which keeps the file mapped.
class ArrayMaker {
 public:
  /// `place`: called with each new array that is not a view; returns the array to use instead.
  /// None: new arrays are used unchanged.
  ArrayMaker(Mode mode, Tied& tied, nb::object place);

  /// `tensor` has the elements of `leaf`; for a nested tensor, `leaf` also has the sizes. `name`
  /// identifies the leaf in messages. For torch, throws Error(io) if `tensor` has elements in
  /// read-only memory, because a write to the torch tensor would crash. For numpy, raises
  /// UnsupportedError for a dtype that numpy does not have.
  nb::object make(const Leaf& leaf, const Tensor& tensor, const LeafName& name);

 private:
  nb::object make_one(const Tensor& tensor, const LeafName& name) const;
  /// Returns `tensor` as a view of one torch tensor over all bytes of its buffer, so that leaves
  /// with the same buffer share a storage in torch. Creates the tensor over the buffer if
  /// necessary. Returns a null object if the view is not possible, for example because it would be
  /// misaligned.
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

/// A plain torch tensor over `tensor`, without a copy. Throws like ArrayMaker::make().
nb::object torch_tensor_of(const Tensor& tensor, const std::string& name);

/// A torch tensor or numpy array over `tensor`, without a copy. framework_scope() determines the
/// framework. A numpy array is writable if the buffer is. Throws like ArrayMaker::make().
nb::object array_of(const Tensor& tensor, const std::string& name);

/// Like array_of(), for a copy of `elements`. For torch, a copy of up to 64 KiB is in the same heap
/// block as the tensor's DLPack struct. Other copies are in memory of `pool`.
nb::object copy_array_of(DType dtype, const Shape& shape, const Shape& strides,
                         std::span<const std::byte> elements, const BufferPool& pool);

/// The base object of a numpy array: a Buffer with Python's buffer protocol.
struct Bytes {
  Buffer buffer;
  bool writable = false;
};

void bind_bytes(nb::module_& module);

}  // namespace tenfold::python
