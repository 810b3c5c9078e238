#include "array_out.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "arguments.hpp"
#include "core/tree/leaf_source.hpp"
#include "dlpack.hpp"
#include "mapped_file.hpp"
#include "python_objects.hpp"
#include "torch_api.hpp"

namespace tenfold::python {
namespace {

/// The head of a heap block that holds everything that a torch tensor needs from this module. The
/// tensor's shape and strides follow the head and, if `buffer` is empty, the elements. Any thread
/// may free the block: if a Python object owns the buffer, releasing the buffer acquires the GIL.
struct TorchLeaf {
  dlpack::ManagedVersioned managed{};
  Buffer buffer;
  /// True during the call that passes the block to torch. The deleter then has no effect.
  bool is_offered = false;
};

/// Alignment in bytes of the elements that are stored in the block of a TorchLeaf.
constexpr std::size_t kAlignment = 64;
/// Copies with more bytes come from the pool, because the kernel would have to zero new pages for a
/// larger block.
constexpr std::size_t kMaxOwnBytes = std::size_t{64} << 10;

TorchLeaf& leaf_of(const dlpack::ManagedVersioned& managed) {
  return *static_cast<TorchLeaf*>(managed.context);
}

struct FreeLeaf {
  void operator()(dlpack::ManagedVersioned* managed) const {
    TorchLeaf* leaf = &leaf_of(*managed);
    leaf->~TorchLeaf();
    ::operator delete(leaf);
  }
};
using OwnedLeaf = std::unique_ptr<dlpack::ManagedVersioned, FreeLeaf>;

/// The deleter of DLPack. torch calls it when it releases the last tensor over the block, or when
/// it fails to create a tensor.
void delete_leaf(dlpack::ManagedVersioned* managed) {
  if (!leaf_of(*managed).is_offered) FreeLeaf()(managed);
}

/// Calls `take`, which passes the block to torch and returns whether torch accepted it. If torch
/// fails, it may or may not have called the deleter; the caller owns the block in both cases.
template <class Take>
bool offer(dlpack::ManagedVersioned& managed, const Take& take) {
  TorchLeaf& leaf = leaf_of(managed);
  leaf.is_offered = true;
  const bool is_taken = take();
  leaf.is_offered = false;
  return is_taken;
}

/// Creates a block. `own_bytes`: number of uninitialised bytes for the elements in the block; if 0,
/// the caller sets the address of the elements.
OwnedLeaf pack(DType dtype, const Shape& shape, const Shape& strides, const Buffer& buffer,
               std::size_t own_bytes) {
  const std::size_t ndim = shape.size();
  const std::size_t leaf_bytes = sizeof(TorchLeaf) + 2 * ndim * sizeof(std::int64_t);
  auto* block = static_cast<std::byte*>(
      ::operator new(leaf_bytes + (own_bytes == 0 ? 0 : own_bytes + kAlignment)));
  auto* leaf = new (block) TorchLeaf{{}, buffer};
  auto* dims = reinterpret_cast<std::int64_t*>(leaf + 1);
  std::copy(shape.begin(), shape.end(), dims);
  std::copy(strides.begin(), strides.end(), dims + ndim);
  dlpack::ManagedVersioned& managed = leaf->managed;
  managed.version = {dlpack::kMajorVersion, dlpack::kMinorVersion};
  managed.context = leaf;
  managed.deleter = delete_leaf;
  if (own_bytes > 0) {
    std::byte* end = block + leaf_bytes;
    managed.array.data =
        end + (kAlignment - reinterpret_cast<std::uintptr_t>(end) % kAlignment) % kAlignment;
  }
  managed.array.device = {dlpack::kCpu, 0};
  managed.array.ndim = static_cast<std::int32_t>(ndim);
  managed.array.dtype = dlpack_dtype(dtype);
  managed.array.shape = dims;
  managed.array.strides = dims + ndim;
  return OwnedLeaf(&managed);
}

OwnedLeaf pack(const Tensor& tensor) {
  OwnedLeaf leaf = pack(tensor.dtype(), tensor.shape(), tensor.strides(), tensor.buffer(), 0);
  // DLPack marks read-only memory by a flag; its data pointer is never const.
  leaf->array.data = tensor.numel() == 0 ? nullptr : const_cast<std::byte*>(tensor.raw_data());
  return leaf;
}

/// Like delete_leaf(), for the structure without a version.
void delete_unversioned(dlpack::Managed* managed) {
  auto* versioned = static_cast<dlpack::ManagedVersioned*>(managed->context);
  if (leaf_of(*versioned).is_offered) return;
  FreeLeaf()(versioned);
  delete managed;
}

[[noreturn]] void refuse_protected_pages(const std::string& name) {
  throw Error::io(ENOMEM, name)
      .problem("the tensor is read-only, and torch would crash on a write")
      .expected("a private writable mapping, which vm.overcommit_memory=2 refuses")
      .remedy("set vm.overcommit_memory to 0 or 1, or open with mode=\"r+\"");
}

/// Creates a tensor with torch.from_dlpack(), for a torch without the exchange API. Old versions of
/// torch accept no versioned capsules and not every dtype. Elements of other dtypes are passed as
/// integers of the same size.
nb::object torch_of_capsule(const Torch& torch_api, OwnedLeaf leaf, const LeafName& name) {
  const dlpack::DataType dtype = leaf->array.dtype;
  leaf->array.dtype = dlpack_dtype_of_any_torch(dtype);
  auto managed = std::make_unique<dlpack::Managed>(
      dlpack::Managed{leaf->array, leaf.get(), delete_unversioned});
  // The capsule has no destructor, because it owns nothing and is not used after the call.
  const nb::object capsule = nb::steal(PyCapsule_New(managed.get(), "dltensor", nullptr));
  if (!capsule.is_valid()) throw nb::python_error();
  const bool has_dtype = leaf->array.dtype == dtype;
  nb::object made;
  const bool is_taken = offer(*leaf, [&] {
    made = nb::steal(call_with(torch_api.from_dlpack, capsule.ptr()));
    return made.is_valid();
  });
  if (!is_taken) throw nb::python_error();
  static_cast<void>(leaf.release());
  static_cast<void>(managed.release());
  if (has_dtype) return made;
  return nb::module_::import_("tenfold._interop.arrays")
      .attr("viewed_as")(made, text(tenfold::to_string(*dtype_of_dlpack(dtype))),
                         text(name.text()));
}

nb::object torch_of(OwnedLeaf leaf, const LeafName& name) {
  const Torch& torch_api = *torch();
  if (torch_api.api == nullptr) return torch_of_capsule(torch_api, std::move(leaf), name);
  void* out = nullptr;
  const bool is_taken = offer(
      *leaf, [&] { return torch_api.api->to_object(leaf.get(), &out) == 0 && out != nullptr; });
  if (!is_taken) throw nb::python_error();
  static_cast<void>(leaf.release());
  return nb::steal(static_cast<PyObject*>(out));
}

nb::object make_torch(const Tensor& tensor, const LeafName& name) {
  // torch ignores the read-only flag of DLPack.
  if (tensor.numel() > 0 && !tensor.buffer().writable()) refuse_protected_pages(name.text());
  return torch_of(pack(tensor), name);
}

nb::object make_numpy_array(const Tensor& tensor, bool writable, const LeafName& name) {
  const nb::object bytes = nb::cast(Bytes{tensor.buffer(), writable});
  Shape strides = tensor.strides();
  for (std::int64_t& stride : strides) stride *= static_cast<std::int64_t>(tensor.itemsize());
  return nb::module_::import_("tenfold._interop.arrays")
      .attr("numpy_array")(bytes, text(tenfold::to_string(tensor.dtype())),
                           tuple_of(tensor.shape()), tuple_of(strides), tensor.offset_bytes(),
                           text(name.text()));
}

/// True if `made`, a copy of a tensor with `strides`, is a torch tensor with the same strides. If
/// the strides differ, an alias of the copied tensor cannot become a view of `made` and gets its
/// own copy.
bool has_strides(const nb::object& made, const Shape& strides) {
  return nb::hasattr(made, "stride") && made.attr("stride")().equal(tuple_of(strides));
}

int get_buffer(PyObject* object, Py_buffer* view, int flags) noexcept {
  auto* bytes = nb::inst_ptr<Bytes>(object);
  return PyBuffer_FillInfo(view, object, const_cast<std::byte*>(bytes->buffer.data()),
                           static_cast<Py_ssize_t>(bytes->buffer.size_bytes()),
                           bytes->writable ? 0 : 1, flags);
}

}  // namespace

std::size_t Tied::place_of(const std::byte* address) const {
  // A multiplicative hash: tensors are aligned, so the low bits of their addresses are equal.
  const auto mixed = reinterpret_cast<std::uintptr_t>(address) * 0x9E3779B97F4A7C15u;
  std::size_t i = (mixed >> 32) & (slots_.size() - 1);
  while (slots_[i].address != nullptr && slots_[i].address != address) {
    i = (i + 1) & (slots_.size() - 1);
  }
  return i;
}

nb::handle Tied::find(const std::byte* address) const {
  return slots_.empty() ? nb::handle() : nb::handle(slots_[place_of(address)].array);
}

void Tied::add(const std::byte* address, nb::handle array) {
  if ((size_ + 1) * 2 > slots_.size()) grow();
  Slot& slot = slots_[place_of(address)];
  if (slot.address != nullptr) return;
  slot = {address, nb::borrow(array)};
  ++size_;
}

void Tied::grow() {
  std::vector<Slot> old(std::max<std::size_t>(16, slots_.size() * 2));
  old.swap(slots_);
  for (Slot& slot : old) {
    if (slot.address != nullptr) slots_[place_of(slot.address)] = std::move(slot);
  }
}

std::string LeafName::text() const {
  if (key.empty()) return std::string(where);
  return where.empty() ? std::string(key) : std::string(where) + ": " + std::string(key);
}

ArrayMaker::ArrayMaker(Mode mode, Tied& tied, nb::object place)
    : mode_(mode),
      tied_(tied),
      place_(std::move(place)),
      use_torch_(output_torch(tied.framework() == Framework::undecided
                                  ? framework_scope()
                                  : tied.framework()) != nullptr) {}

nb::object ArrayMaker::make(const Leaf& leaf, const Tensor& tensor, const LeafName& name) {
  const bool may_be_tied = tensor.numel() > 0 && !leaf.is_nested();
  if (may_be_tied) {
    const nb::handle found = tied_.find(tensor.raw_data());
    if (found.is_valid()) {
      nb::object same = nb::module_::import_("tenfold._interop.arrays")
                            .attr("tied_to")(found, text(tenfold::to_string(tensor.dtype())),
                                             tuple_of(tensor.shape()), tuple_of(tensor.strides()));
      if (!same.is_none()) {
        const bool is_new = !same.is(found);
        if (is_new && use_torch_ && tied_.makes_mapped()) make_mapped(same, leaf, tensor);
        return with_grad(leaf, same);
      }
    }
  }
  nb::object made;
  if (may_be_tied && use_torch_ && leaf.in_storage()) made = make_view(tensor, name);
  const bool is_view = made.is_valid();
  if (!is_view) made = leaf.is_nested() ? make_nested(leaf, tensor, name) : make_one(tensor, name);
  if (use_torch_ && tied_.makes_mapped()) make_mapped(made, leaf, tensor);
  const bool is_placed = !place_.is_none() && !is_view;
  if (is_placed) made = place_(made);
  if (leaf.grad() != Grad::none) made = with_grad(leaf, made);
  const bool same_layout =
      !is_placed || tensor.is_contiguous() || has_strides(made, tensor.strides());
  if (may_be_tied && same_layout) tied_.add(tensor.raw_data(), made);
  return made;
}

nb::object ArrayMaker::make_view(const Tensor& tensor, const LeafName& name) {
  const Buffer& storage = tensor.buffer();
  nb::object base = nb::borrow(tied_.find(storage.data()));
  if (!base.is_valid()) {
    const auto size = static_cast<std::int64_t>(storage.size_bytes());
    base = make_torch(Tensor(DType::uint8, {size}, {1}, storage, 0), name);
    if (!place_.is_none()) base = place_(base);
    tied_.add(storage.data(), base);
  }
  nb::object made =
      nb::module_::import_("tenfold._interop.arrays")
          .attr("tied_to")(base, text(tenfold::to_string(tensor.dtype())), tuple_of(tensor.shape()),
                           tuple_of(tensor.strides()), tensor.raw_data() - storage.data());
  return made.is_none() ? nb::object() : made;
}

/// Restores the leaf's autograd properties: a Parameter, or a tensor that requires a gradient.
/// Returns numpy arrays and MemoryMappedTensors unchanged.
nb::object ArrayMaker::with_grad(const Leaf& leaf, const nb::object& made) const {
  if (!use_torch_ || tied_.makes_mapped()) return made;
  const Grad grad = leaf.grad();
  return nb::module_::import_("tenfold._interop.arrays")
      .attr("with_grad")(made, grad == Grad::required || grad == Grad::parameter,
                         grad == Grad::parameter || grad == Grad::frozen_parameter);
}

nb::object ArrayMaker::make_one(const Tensor& tensor, const LeafName& name) const {
  return use_torch_ ? make_torch(tensor, name) : make_numpy(tensor, name);
}

/// Converts a new tensor to a MemoryMappedTensor by assigning `__class__`, as torch's lazy modules
/// do. That is several times faster than creating a view with that class.
void ArrayMaker::make_mapped(nb::object& made, const Leaf& leaf, const Tensor& tensor) const {
  made.attr("__class__") = tied_.type();
  if (!tied_.file().is_none()) {
    made.attr("_file") = tied_.file();
  } else if (!leaf.in_memory()) {
    made.attr("_file") = nb::cast(MappedFile::of_leaf(leaf, tensor, mode_));
  }
}

nb::object torch_tensor_of(const Tensor& tensor, const std::string& name) {
  return make_torch(tensor, {name, ""});
}

nb::object array_of(const Tensor& tensor, const std::string& name) {
  if (output_torch() != nullptr) return make_torch(tensor, {name, ""});
  return make_numpy_array(tensor, tensor.buffer().writable(), {name, ""});
}

nb::object copy_array_of(DType dtype, const Shape& shape, const Shape& strides,
                         std::span<const std::byte> elements, const BufferPool& pool) {
  if (elements.empty() || elements.size() > kMaxOwnBytes || output_torch() == nullptr) {
    Buffer buffer = pool.take(elements.size());
    std::ranges::copy(elements, buffer.mutable_data());
    return array_of(Tensor(dtype, shape, strides, std::move(buffer), 0), "value");
  }
  OwnedLeaf leaf = pack(dtype, shape, strides, {}, elements.size());
  std::memcpy(leaf->array.data, elements.data(), elements.size());
  return torch_of(std::move(leaf), {"value", ""});
}

nb::object ArrayMaker::make_numpy(const Tensor& tensor, const LeafName& name) const {
  return make_numpy_array(tensor, mode_ != Mode::read && tensor.buffer().writable(), name);
}

nb::object ArrayMaker::make_nested(const Leaf& leaf, const Tensor& tensor,
                                   const LeafName& name) const {
  const Tensor sizes = leaf.sizes();
  nb::list shapes;
  const std::span<const std::int64_t> lengths = sizes.span<std::int64_t>();
  const auto width = static_cast<std::size_t>(sizes.shape().at(1));
  for (std::size_t row = 0; row < static_cast<std::size_t>(sizes.shape().at(0)); ++row) {
    const auto begin = lengths.begin() + static_cast<std::ptrdiff_t>(row * width);
    shapes.append(tuple_of(Shape(begin, begin + static_cast<std::ptrdiff_t>(width))));
  }
  return nb::module_::import_("tenfold._interop.arrays")
      .attr("nested_array")(make_one(tensor, name), shapes);
}

void bind_bytes(nb::module_& module) {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                                {0, nullptr}};
  nb::class_<Bytes>(module, "Bytes", nb::type_slots(slots));
  nb::class_<Tied>(module, "Tied")
      .def(nb::init<>())
      .def(
          "__init__",
          [](Tied* self, int framework) { new (self) Tied(static_cast<Framework>(framework)); },
          nb::arg("framework"))
      .def(nb::init<AnyObject, AnyObject>(), nb::arg("type").none(), nb::arg("file").none());
}

}  // namespace tenfold::python
