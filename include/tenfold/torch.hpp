#pragma once

/// LibTorch and tenfold: tensors in both directions without a copy, and the state of modules and
/// optimizers.
///
///     torch::nn::Linear layer(512, 512);
///     tenfold::load_into(layer, "model.safetensors");      // file into parameters
///     tenfold::save(tenfold::state_dict(layer), "model");  // Python's state_dict
///     tenfold::load_into(optimizer, tenfold::open("run.pt")["optimizer"]);
///     tenfold::TensorDict model = tenfold::open("model");
///     at::Tensor w = tenfold::to_torch(model.at("weight"));  // no copy
///     auto data = tenfold::torch_dataset(ds);                // for torch::data
///
/// The headers in torch/:
///
///     tenfold/torch/dataset.hpp     data sets for torch::data; included by this header
///     tenfold/torch/optimizer.hpp   the state of optimizers; included by this header
///     tenfold/torch/checkpoint.hpp  TrainingState: a training that CheckpointManager saves
///
/// Header-only: a program that includes this header must link LibTorch; the library tenfold itself
/// does not. From LibTorch, it includes only headers of ATen's tensor and of c10. Modules are
/// template parameters, so that programs without a module do not compile torch/torch.h.

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/tensor.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold {

/// @cond element types of LibTorch, as in tensor.data<at::Half>()
template <>
struct ElementType<c10::Half> {
  static constexpr DType value = DType::float16;
};
template <>
struct ElementType<c10::BFloat16> {
  static constexpr DType value = DType::bfloat16;
};
template <>
struct ElementType<c10::Float8_e4m3fn> {
  static constexpr DType value = DType::float8_e4m3fn;
};
template <>
struct ElementType<c10::Float8_e5m2> {
  static constexpr DType value = DType::float8_e5m2;
};
template <>
struct ElementType<c10::complex<float>> {
  static constexpr DType value = DType::complex64;
};
template <>
struct ElementType<c10::complex<double>> {
  static constexpr DType value = DType::complex128;
};
/// @endcond

/// Returns the torch dtype of the same name. Throws Error(unsupported) if this LibTorch is too old
/// for it.
inline c10::ScalarType to_torch(DType dtype);
/// Returns the DType of the same name. Throws Error(unsupported) for torch dtypes that DType does
/// not have, such as quantized dtypes and uint4.
inline DType from_torch(c10::ScalarType dtype);

/// Returns a CPU tensor over the same bytes, with the same shape and strides, without gradient. Its
/// storage keeps the bytes (a mapping, for example) alive; writes to it also change `tensor`.
/// Throws Error(invalid_argument) if `tensor` is read-only and not empty, because torch would crash
/// on a write; Error(unsupported) if this LibTorch lacks the dtype.
inline at::Tensor to_torch(const Tensor& tensor);

/// Returns a Tensor over the same bytes, which it keeps alive. Strided CPU tensors are shared
/// without a copy; gradient and graph are dropped. Throws Error(unsupported) for tensors of other
/// devices (`cpu()` copies them), and for conjugate and negative views (`resolve_conj()`,
/// `resolve_neg()`). Also throws it for sparse, nested, quantized, meta and undefined tensors, for
/// dtypes that DType does not have, and for tensors whose storage was released.
inline Tensor from_torch(const at::Tensor& tensor);

namespace torch_detail {
/// A module itself, not an object that holds one.
template <class Module>
concept NamesTensors = requires(Module& module) {
  module.named_parameters();
  module.named_buffers();
};

template <class Holder>
concept HoldsModule = !NamesTensors<Holder> && requires(Holder& holder) {
  { *holder };
  requires NamesTensors<std::remove_reference_t<decltype(*holder)>>;
};
}  // namespace torch_detail

/// torch::nn::Module, torch::jit::Module, or any class with named_parameters() and named_buffers().
/// The items of these lists have key() and value(), or name and value, or first and second. Also an
/// object that holds a module: a module holder of torch (torch::nn::Linear), a smart pointer.
template <class Module>
concept TorchModule = torch_detail::NamesTensors<Module> || torch_detail::HoldsModule<Module>;

/// Returns the parameters and buffers by dotted name, in the order of Python's state_dict: a node
/// of kind ordered_dict whose tensors share the module's memory. Tied tensors share storage.
/// Undefined tensors (the bias of a layer without one) are omitted, as in Python. Conjugate and
/// negative views, and tensors on other devices, are copied to main memory; tied tensors are copied
/// once. All buffers are included, because C++ modules do not record which buffers are not
/// persistent in Python. Throws Error(unsupported) naming a tensor that is sparse, nested,
/// quantized or meta, of a dtype that DType does not have, or whose storage was released. Throws
/// Error(invalid_argument) for an empty module holder.
template <TorchModule Module>
TensorDict state_dict(Module& module);

/// Copies tensors of `source` (read from its file, if it was opened) directly into the parameters
/// and buffers of `module`. The parameters and buffers stay the same objects: optimizers, tied
/// parameters and flattened weights of RNNs see the new values.
/// Names, dtypes and shapes are compared first. If they differ and `options.strict` is true, throws
/// one Error(invalid_argument), which lists up to 20 differences of each kind, before anything
/// changes.
///
/// Memory: no second copy, except at most 64 MiB (or one larger tensor) at a time for conjugate and
/// negative views and for tensors on other devices; `options.monitor` does not observe these. If a
/// tied tensor has several names, the last one in the module's order is read, as in Python. A later
/// backward pass that needs the old values fails, as after copy_(). Throws Error(unsupported)
/// naming a tensor of the module that state_dict() would refuse, and Error(invalid_argument) for an
/// expanded tensor of the module or an empty module holder.
template <TorchModule Module>
LoadReport load_into(Module& module, const TensorDict& source, const LoadIntoOptions& options = {});
/// Calls load_into() with the tree open(source).
template <TorchModule Module>
LoadReport load_into(Module& module, const Path& source, const LoadIntoOptions& options = {});

/// A class with the members param_groups() and state() of torch::optim::Optimizer. state_dict() and
/// load_into() support Adam, AdamW, SGD, RMSprop, Adagrad and LBFGS, also through a reference to
/// torch::optim::Optimizer. They throw Error(unsupported) for other classes.
template <class Optimizer>
concept TorchOptimizer = requires(Optimizer& optimizer) {
  optimizer.param_groups();
  optimizer.state();
};

/// Returns an optimizer's state with Python's names: {"state": {0: {...}}, "param_groups": [...]}.
/// Tensors other than "step" share the optimizer's memory, or are copied where state_dict() of a
/// module copies tensors. Options that only Python has get the value that describes LibTorch's
/// behaviour (maximize is false). Throws Error(unsupported) for unsupported optimizers, and for
/// tensors that state_dict() of a module would refuse.
template <TorchOptimizer Optimizer>
TensorDict state_dict(Optimizer& optimizer);

/// Loads an optimizer's state_dict() that C++ or Python saved: td["optimizer"]. Parameters are
/// matched by their order in the groups. Existing state tensors are filled in place, others are
/// created with the shape, dtype and device that the optimizer gives them. A parameter that was
/// saved without a state loses its state (for Adagrad, which cannot step without a state, this is a
/// difference). Group options are loaded. Everything is compared first: if there are differences
/// and `options.strict` is true, throws one Error(invalid_argument), which lists up to 20
/// differences of each kind, before anything changes. If `strict` is false, the state of each
/// parameter is loaded completely or not at all.
///
/// Python's options that LibTorch does not have are listed in LoadReport::ignored if they do not
/// change results: foreach, fused, capturable, differentiable, initial_lr and param_names. maximize
/// and decoupled_weight_decay are ignored if their values describe LibTorch's behaviour, and are
/// differences otherwise. Further options that LibTorch does not have are differences.
/// `options.keys` must not be set; `options.rename` may be set only if parameters are matched by
/// name. Throws Error(invalid_argument) if `source` is not the state of an optimizer, and
/// Error(unsupported) for unsupported optimizers.
template <TorchOptimizer Optimizer>
LoadReport load_into(Optimizer& optimizer, const TensorDict& source,
                     const LoadIntoOptions& options = {});
/// Calls load_into() with the tree open(source).
template <TorchOptimizer Optimizer>
LoadReport load_into(Optimizer& optimizer, const Path& source, const LoadIntoOptions& options = {});

/// As state_dict(optimizer), but each group also has "param_names", the names of its parameters in
/// `module`, as with Python's Optimizer(module.named_parameters()). Throws Error(invalid_argument)
/// for a parameter that does not belong to the module.
template <TorchOptimizer Optimizer, TorchModule Module>
TensorDict state_dict(Optimizer& optimizer, Module& module);

/// As load_into(optimizer, source), but if all parameters of the optimizer and of the source have
/// unique names, matches parameters by their names in `module`, in any order. Otherwise matches
/// them by order. `options.rename` maps the source's names to the module's. Throws
/// Error(invalid_argument) for a parameter that does not belong to the module.
template <TorchOptimizer Optimizer, TorchModule Module>
LoadReport load_into(Optimizer& optimizer, Module& module, const TensorDict& source,
                     const LoadIntoOptions& options = {});

// --- implementation details ----------------------------------------------------------

namespace torch_detail {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};
using NamedTensors = std::vector<NamedTensor>;

/// c10's names of dtypes, in the order of DType. The code compares names, because an older LibTorch
/// lacks some enumerators.
inline constexpr std::array<std::string_view, kNumDTypes> kScalarNames = {
    "Bool",           "Byte",
    "UInt16",         "UInt32",
    "UInt64",         "Char",
    "Short",          "Int",
    "Long",           "Half",
    "BFloat16",       "Float",
    "Double",         "ComplexHalf",
    "ComplexFloat",   "ComplexDouble",
    "Float8_e4m3fn",  "Float8_e4m3fnuz",
    "Float8_e5m2",    "Float8_e5m2fnuz",
    "Float8_e8m0fnu", "Float4_e2m1fn_x2"};
static_assert(!kScalarNames.back().empty(), "one name per dtype");

using ScalarTypes = std::array<std::optional<c10::ScalarType>, kNumDTypes>;

inline ScalarTypes find_scalar_types() {
  ScalarTypes found;
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    const auto candidate = static_cast<c10::ScalarType>(i);
    for (std::size_t dtype = 0; dtype < kNumDTypes; ++dtype) {
      if (kScalarNames[dtype] == c10::toString(candidate)) found[dtype] = candidate;
    }
  }
  return found;
}

inline const ScalarTypes& scalar_types() {
  static const ScalarTypes found = find_scalar_types();
  return found;
}

inline std::optional<DType> dtype_of_scalar(c10::ScalarType wanted) noexcept {
  const ScalarTypes& types = scalar_types();
  for (std::size_t i = 0; i < kNumDTypes; ++i) {
    if (types[i] == wanted) return static_cast<DType>(i);
  }
  return std::nullopt;
}

/// Returns why a tensor is not a strided array of a supported dtype, on any device; empty if it is.
/// The order of the checks matters: later queries are invalid for tensors that earlier checks
/// refuse.
inline std::string to_tensor_problem(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined one";
  if (tensor.is_nested()) return "a nested one";
  if (tensor.layout() != c10::kStrided) {
    std::ostringstream text;
    text << "one of layout " << tensor.layout();
    return text.str();
  }
  if (tensor.is_quantized()) return "a quantized one";
  if (tensor.is_meta()) return "one on the meta device, which has no bytes";
  if (!tensor.has_storage()) return "one without a storage";
  if (!dtype_of_scalar(tensor.scalar_type())) {
    return std::string("one of dtype ") + c10::toString(tensor.scalar_type());
  }
  return {};
}

/// For a tensor whose to_tensor_problem() is empty, returns why its elements are not stored in CPU
/// memory; empty if they are. (A conjugate or negative view stores other numbers.)
inline std::string indirection(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu()) {
    return "one on the device " + tensor.device().str() + "; copy it with cpu()";
  }
  if (tensor.is_conj()) return "a conjugate view; copy it with resolve_conj()";
  if (tensor.is_neg()) return "a negative view; copy it with resolve_neg()";
  return {};
}

[[noreturn]] inline void refuse(const std::string& subject, const std::string& problem,
                                const std::string& found) {
  throw Error(ErrorCode::unsupported)
      .part(subject)
      .problem(problem)
      .expected("a dense tensor")
      .found(found);
}

inline std::string subject_of(std::string_view whose, const std::string& name) {
  return std::string(whose) + ": tensor \"" + name + "\"";
}

inline Tensor share(const at::Tensor& tensor, const std::string& subject) {
  constexpr const char* kProblem = "its bytes cannot be shared";
  std::string found = to_tensor_problem(tensor);
  if (found.empty()) found = indirection(tensor);
  if (!found.empty()) refuse(subject, kProblem, found);
  // Keeps the storage, not the tensor, so that its autograd graph can be released.
  const auto storage = std::make_shared<c10::Storage>(tensor.storage());
  auto* first = static_cast<std::byte*>(storage->mutable_data());
  std::uint64_t offset_bytes = 0;
  if (tensor.numel() != 0) {
    if (first == nullptr) refuse(subject, kProblem, "one whose storage has no bytes");
    offset_bytes = static_cast<std::uint64_t>(tensor.storage_offset()) * tensor.itemsize();
  }
  Buffer buffer({first, storage->nbytes()}, storage);
  return {*dtype_of_scalar(tensor.scalar_type()), tensor.sizes().vec(), tensor.strides().vec(),
          std::move(buffer), offset_bytes};
}

/// Shares the memory of CPU tensors. Copies conjugate and negative views, and tensors of other
/// devices; copies of tied tensors share storage.
class MainMemory {
 public:
  Tensor tensor(const NamedTensor& named, std::string_view whose) {
    const std::string subject = subject_of(whose, named.name);
    const std::string found = to_tensor_problem(named.tensor);
    if (!found.empty()) refuse(subject, "it cannot be saved", found);
    if (indirection(named.tensor).empty()) return share(named.tensor, subject);
    return share(copy_of(named.tensor), subject);
  }

 private:
  struct Copy {
    at::Tensor of;
    at::Tensor copy;
  };

  static bool same(const at::Tensor& a, const at::Tensor& b) {
    return a.device() == b.device() && a.scalar_type() == b.scalar_type() &&
           a.sizes() == b.sizes() && a.strides() == b.strides() && a.is_conj() == b.is_conj() &&
           a.is_neg() == b.is_neg();
  }

  const at::Tensor& copy_of(const at::Tensor& tensor) {
    std::vector<Copy>& there = copies_[tensor.const_data_ptr()];
    for (const Copy& known : there) {
      if (same(known.of, tensor)) return known.copy;
    }
    there.push_back({tensor, tensor.detach().cpu().resolve_conj().resolve_neg()});
    return there.back().copy;
  }

  std::unordered_map<const void*, std::vector<Copy>> copies_;
};

// --- the tensors of a module ---

template <class Item>
NamedTensor named_tensor(const Item& item) {
  if constexpr (requires { item.key(); }) {
    return {item.key(), item.value()};
  } else if constexpr (requires { item.name; }) {
    return {item.name, item.value};
  } else {
    return {item.first, item.second};
  }
}

template <class List>
void add_all(const List& list, const std::string& prefix, NamedTensors& tensors) {
  for (const auto& item : list) {
    NamedTensor named = named_tensor(item);
    if (!named.tensor.defined()) continue;
    named.name.insert(0, prefix);
    tensors.push_back(std::move(named));
  }
}

/// A module that can list its own tensors without those of its children.
template <class Module>
concept HasChildren = requires(Module& module) {
  module.named_parameters(false);
  module.named_buffers(false);
  module.named_children();
};

/// Appends the tensors in Python's order: the parameters of a module, its buffers, and then each of
/// its children. Without HasChildren, appends all parameters, then all buffers.
template <class Module>
void collect(Module& module, const std::string& prefix, NamedTensors& tensors) {
  if constexpr (HasChildren<Module>) {
    add_all(module.named_parameters(false), prefix, tensors);
    add_all(module.named_buffers(false), prefix, tensors);
    for (const auto& item : module.named_children()) {
      if constexpr (requires { item.key(); }) {
        collect(*item.value(), prefix + item.key() + '.', tensors);  // a shared_ptr
      } else {
        collect(item.value, prefix + item.name + '.', tensors);
      }
    }
  } else {
    add_all(module.named_parameters(), prefix, tensors);
    add_all(module.named_buffers(), prefix, tensors);
  }
}

/// The module that `module` is or holds.
template <class Module>
auto& module_of(Module& module) {
  if constexpr (NamesTensors<Module>) {
    return module;
  } else {
    if constexpr (requires { static_cast<bool>(module); }) {
      if (!static_cast<bool>(module)) {
        throw Error(ErrorCode::invalid_argument)
            .part("module")
            .expected("a holder of a module")
            .found("an empty one");
      }
    }
    return *module;
  }
}

template <class Module>
NamedTensors tensors_of(Module& module) {
  NamedTensors tensors;
  collect(module_of(module), "", tensors);
  return tensors;
}

// --- loading ---

/// Maximum size in bytes of a group of tensors that are copied through main memory: tensors on
/// other devices, conjugate and negative views. A larger tensor is a group of its own.
inline constexpr std::uint64_t kGroupBytes = std::uint64_t{64} << 20;

/// A tensor with the dtype and shape of `target`, for comparison only. All its elements share the
/// memory of one element.
inline Tensor outline_of(const NamedTensor& target) {
  const std::string found = to_tensor_problem(target.tensor);
  if (!found.empty()) {
    refuse(subject_of("target", target.name), "it cannot be written in place", found);
  }
  Shape shape = target.tensor.sizes().vec();
  Shape strides(shape.size(), 0);  // every element is the same one
  const DType dtype = *dtype_of_scalar(target.tensor.scalar_type());
  return {dtype, std::move(shape), std::move(strides), Buffer::allocate(itemsize(dtype)), 0};
}

inline NamedTensors named_by(const std::vector<std::string>& names, NamedTensors tensors) {
  const std::unordered_set<std::string_view> wanted(names.begin(), names.end());
  std::erase_if(tensors, [&](const NamedTensor& named) { return !wanted.contains(named.name); });
  return tensors;
}

/// Keeps only the last of tied tensors (tensors with the same address and size), as in Python, so
/// that two threads do not write the same memory.
inline NamedTensors without_aliases(NamedTensors tensors) {
  std::set<std::pair<const void*, std::size_t>> seen;
  NamedTensors last;
  for (std::size_t i = tensors.size(); i-- > 0;) {
    const at::Tensor& tensor = tensors[i].tensor;
    const bool first = seen.emplace(tensor.const_data_ptr(), tensor.nbytes()).second;
    if (first || tensor.numel() == 0) last.push_back(std::move(tensors[i]));
  }
  return last;
}

/// Bumps the version counter of a tensor. Called before the write, because a write that fails
/// half-way has changed the tensor, too.
inline void note_write(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

/// Reads the tensors of `group` into main memory, and copies them into the target tensors.
inline void load_group(const NamedTensors& group, const TensorDict& source,
                       const LoadIntoOptions& options) {
  TensorDict host;
  for (const auto& [name, tensor] : group) {
    host.set(name, Tensor::zeros(*dtype_of_scalar(tensor.scalar_type()), tensor.sizes().vec()));
  }
  load_into(host, source, options);
  for (const auto& [name, tensor] : group) tensor.detach().copy_(to_torch(host.at(name)));
}

inline void load_indirect(const NamedTensors& tensors, const TensorDict& source,
                          LoadIntoOptions options) {
  options.monitor = nullptr;  // the monitor has already reported completion
  NamedTensors group;
  std::uint64_t size_bytes = 0;
  for (const NamedTensor& named : tensors) {
    if (!group.empty() && size_bytes + named.tensor.nbytes() > kGroupBytes) {
      load_group(group, source, options);
      group.clear();
      size_bytes = 0;
    }
    group.push_back(named);
    size_bytes += named.tensor.nbytes();
  }
  if (!group.empty()) load_group(group, source, options);
}

inline LoadReport load_into_tensors(const NamedTensors& targets, const TensorDict& source,
                                    const LoadIntoOptions& options) {
  TensorDict everything;
  for (const NamedTensor& target : targets) everything.set(target.name, outline_of(target));
  LoadIntoOptions checking = options;
  checking.dry_run = true;
  LoadReport report = load_into(everything, source, checking);
  if (options.dry_run) return report;

  NamedTensors loaded = named_by(report.loaded, targets);
  for (const NamedTensor& named : loaded) note_write(named.tensor);
  TensorDict direct;
  NamedTensors indirect;
  for (NamedTensor& named : without_aliases(std::move(loaded))) {
    if (indirection(named.tensor).empty()) {
      direct.set(named.name, share(named.tensor, subject_of("target", named.name)));
    } else {
      indirect.push_back(std::move(named));
    }
  }
  LoadIntoOptions copying = options;
  copying.strict = false;  // each of these two loads uses only a part of the source
  load_into(direct, source, copying);
  load_indirect(indirect, source, std::move(copying));
  return report;
}

}  // namespace torch_detail

inline c10::ScalarType to_torch(DType dtype) {
  const auto found = torch_detail::scalar_types()[static_cast<std::size_t>(dtype)];
  if (!found) {
    throw Error(ErrorCode::unsupported)
        .part("dtype ", to_string(dtype))
        .problem("this version of LibTorch does not have it");
  }
  return *found;
}

inline DType from_torch(c10::ScalarType dtype) {
  const auto found = torch_detail::dtype_of_scalar(dtype);
  if (!found) {
    throw Error(ErrorCode::unsupported)
        .part("dtype ", c10::toString(dtype))
        .expected("a dtype that tenfold::DType has");
  }
  return *found;
}

inline at::Tensor to_torch(const Tensor& tensor) {
  if (tensor.numel() != 0 && !tensor.buffer().writable()) {
    throw Error(ErrorCode::invalid_argument)
        .part("tensor")
        .problem("torch would crash on a write")
        .expected("bytes that may be written")
        .found("read-only ones")
        .remedy(
            "create the buffer as writable; for bytes of a file, set vm.overcommit_memory to 0 or "
            "1, because 2 refuses private writable mappings");
  }
  return at::from_blob(
      const_cast<std::byte*>(tensor.raw_data()), tensor.shape(), tensor.strides(),
      [buffer = tensor.buffer()](void*) {},  // alive as long as the deleter is
      at::TensorOptions(to_torch(tensor.dtype())), at::Device(at::kCPU));
}

inline Tensor from_torch(const at::Tensor& tensor) { return torch_detail::share(tensor, "tensor"); }

template <TorchModule Module>
TensorDict state_dict(Module& module) {
  NodeInfo info;
  info.kind = NodeKind::ordered_dict;
  TensorDict state(std::move(info));
  torch_detail::MainMemory memory;
  for (const torch_detail::NamedTensor& named : torch_detail::tensors_of(module)) {
    state.set(named.name, memory.tensor(named, "module"));
  }
  return state;
}

template <TorchModule Module>
LoadReport load_into(Module& module, const TensorDict& source, const LoadIntoOptions& options) {
  return torch_detail::load_into_tensors(torch_detail::tensors_of(module), source, options);
}

template <TorchModule Module>
LoadReport load_into(Module& module, const Path& source, const LoadIntoOptions& options) {
  return load_into(module, open(source), options);
}

}  // namespace tenfold

#include <tenfold/torch/dataset.hpp>
#include <tenfold/torch/optimizer.hpp>
