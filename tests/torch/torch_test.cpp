#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn.h>
#include <tenfold/tenfold.hpp>
#include <tenfold/torch.hpp>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "io/sample_trees.hpp"
#include "support/temporary_folder.hpp"
#include "support/values.hpp"

namespace tenfold {
namespace {

using test::bytes_of;
using test::counting;
using test::thrown_by;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// --- tensors ---

TEST(ToTorch, EveryDTypeRoundTripsWithTorchsName) {
  for (const DType dtype : all_dtypes()) {
    const Tensor tensor = Tensor::zeros(dtype, {2, 3});
    std::memset(tensor.mutable_raw_data(), 1, tensor.nbytes());
    const at::Tensor there = to_torch(tensor);
    EXPECT_EQ(std::string(c10::getDtypeNames(there.scalar_type()).first), to_string(dtype));
    EXPECT_EQ(there.itemsize(), itemsize(dtype)) << to_string(dtype);
    const Tensor back = from_torch(there);
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.raw_data(), tensor.raw_data()) << to_string(dtype);
    EXPECT_EQ(bytes_of(back), bytes_of(tensor)) << to_string(dtype);
  }
}

TEST(ToTorch, KeepsShapeStridesAndValues) {
  const Tensor whole = counting({3, 4});
  // Columns 1 and 3, transposed.
  const Tensor view(DType::float32, {2, 3}, {2, 4}, whole.buffer(), 4);
  const at::Tensor there = to_torch(view);
  EXPECT_EQ(there.sizes().vec(), (Shape{2, 3}));
  EXPECT_EQ(there.strides().vec(), (Shape{2, 4}));
  EXPECT_TRUE(at::equal(there, at::tensor({1.F, 5.F, 9.F, 3.F, 7.F, 11.F}).view({2, 3})));
}

TEST(ToTorch, SupportsScalarsAndTensorsWithoutElements) {
  const at::Tensor scalar = to_torch(counting({}, 7));
  EXPECT_EQ(scalar.dim(), 0);
  EXPECT_EQ(scalar.item<float>(), 7);
  for (const Shape& shape : {Shape{0}, Shape{0, 3}, Shape{3, 0, 2}}) {
    EXPECT_EQ(to_torch(Tensor::zeros(DType::int64, shape)).sizes().vec(), shape);
    EXPECT_EQ(from_torch(to_torch(Tensor::zeros(DType::int64, shape))).shape(), shape);
  }
}

TEST(ToTorch, ReleasesTheBytesWithTheLastTensor) {
  auto heap = std::make_shared<std::vector<float>>(6, 2.F);
  const std::weak_ptr<void> alive = heap;
  at::Tensor row;
  {
    const Buffer bytes(std::as_writable_bytes(std::span(*heap)), heap);
    heap.reset();
    row = to_torch(Tensor(DType::float32, {2, 3}, bytes))[1];
  }
  EXPECT_FALSE(alive.expired());
  EXPECT_EQ(row.sum().item<float>(), 6);
  row.reset();
  EXPECT_TRUE(alive.expired());
}

TEST(ToTorch, RefusesReadOnlyBuffers) {
  const Tensor tensor = counting({4});
  const Buffer buffer = Buffer::read_only(tensor.buffer().bytes(), tensor.buffer().owner());
  const auto error = thrown_by([&] { to_torch(Tensor(DType::float32, {4}, buffer)); });
  EXPECT_EQ(error.code, ErrorCode::invalid_argument);
  EXPECT_THAT(error.message, HasSubstr("found read-only ones"));
}

TEST(ToTorch, WritesReachTheFileInModeWriteThroughOnly) {
  const test::TemporaryFolder folder;
  TensorDict tree;
  tree.set("w", counting({40000}));  // large enough to be mapped
  save(tree, folder / "tree");
  to_torch(load(folder / "tree").at("w")).fill_(-1);
  EXPECT_EQ(bytes_of(open(folder / "tree").at("w")), bytes_of(counting({40000})));
  to_torch(load(folder / "tree", {.mode = Mode::write_through}).at("w")).fill_(-1);
  EXPECT_EQ(to_torch(open(folder / "tree").at("w")).sum().item<float>(), -40000);
}

TEST(FromTorch, SharesStridedViewsWithTheirStorage) {
  const at::Tensor whole = at::arange(12, at::kInt).view({3, 4});
  const at::Tensor view = whole.t().slice(0, 1, 4, 2);  // columns 1 and 3
  const Tensor shared = from_torch(view);
  EXPECT_EQ(shared.raw_data(), view.const_data_ptr());
  EXPECT_EQ(shared.shape(), (Shape{2, 3}));
  EXPECT_EQ(shared.strides(), (Shape{2, 4}));
  const Tensor values = shared.contiguous();
  EXPECT_THAT(values.span<std::int32_t>(), ElementsAre(1, 5, 9, 3, 7, 11));
  const Tensor expanded = from_torch(at::ones({1, 3}).expand({4, 3}));
  EXPECT_EQ(expanded.strides(), (Shape{0, 1}));
}

TEST(FromTorch, KeepsTheStorageAliveAfterTheTensor) {
  bool freed = false;
  std::vector<float> memory(4, 3);
  Tensor shared = from_torch(at::from_blob(memory.data(), {4}, [&](void*) { freed = true; })[1]);
  EXPECT_FALSE(freed);
  EXPECT_EQ(shared.raw_data(), reinterpret_cast<std::byte*>(memory.data() + 1));
  shared = Tensor();
  EXPECT_TRUE(freed);
}

TEST(FromTorch, ReleasesTheTensorsGraph) {
  bool graph_freed = false;
  std::vector<float> memory(4, 3);
  Tensor shared;
  {
    const at::Tensor leaf =
        at::from_blob(memory.data(), {4}, [&](void*) { graph_freed = true; }).requires_grad_();
    const at::Tensor square = leaf * leaf;  // the graph of its gradient owns `leaf`
    shared = from_torch(square);
  }
  EXPECT_TRUE(graph_freed);
  EXPECT_THAT(shared.span<float>(), ElementsAre(9, 9, 9, 9));
}

TEST(FromTorch, RefusesUnsupportedTensors) {
  const at::Tensor complex = at::ones({2}, at::kComplexFloat);
  const at::Tensor floats = at::ones({2, 2});
  const at::Tensor released = at::ones({4});
  released.storage().unsafeGetStorageImpl()->reset();
  const std::vector<std::pair<at::Tensor, std::string>> cases = {
      {complex.conj(), "found a conjugate view; copy it with resolve_conj()"},
      {at::imag(complex.conj()), "found a negative view; copy it with resolve_neg()"},
      {floats.to_sparse(), "found one of layout Sparse"},
      {floats.to_sparse_csr(), "found one of layout SparseCsr"},
      {at::empty({2}, at::TensorOptions(at::kMeta)),
       "found one on the meta device, which has no bytes"},
      {at::quantize_per_tensor(floats, 1, 0, at::kQInt8), "found a quantized one"},
      {at::empty({2}, at::kBits8), "found one of dtype Bits8"},
      {at::_nested_tensor_from_tensor_list({floats, floats}), "found a nested one"},
      {at::_efficientzerotensor({2}, at::kFloat), "found one whose storage has no bytes"},
      {released, "found one whose storage has no bytes"},
      {at::Tensor(), "found an undefined one"},
  };
  for (const auto& [tensor, text] : cases) {
    const auto error = thrown_by([&] { from_torch(tensor); });
    EXPECT_EQ(error.code, ErrorCode::unsupported);
    EXPECT_THAT(error.message, AllOf(HasSubstr("expected a dense tensor"), EndsWith(text)));
  }
  EXPECT_EQ(thrown_by([] { from_torch(at::kQInt8); }).code, ErrorCode::unsupported);
}

// --- modules ---

/// A module with submodules. Both levels have parameters and buffers; one weight is tied, and one
/// layer has no bias.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    scale = register_buffer("scale", at::full({}, 0.5));
    embed = register_module("embed", torch::nn::Embedding(6, 4));
    body = register_module(
        "body", torch::nn::Sequential(torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)),
                                      torch::nn::BatchNorm1d(4)));
    head = register_module("head", torch::nn::Linear(4, 6));
    head->weight.set_data(embed->weight);
    gain = register_parameter("gain", at::ones({4}));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    return head(body->forward(embed(tokens)) * gain) * scale;
  }

  at::Tensor scale, gain;
  torch::nn::Embedding embed{nullptr};
  torch::nn::Sequential body{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

/// The result of `list(model.state_dict())` in Python for the same model.
const std::vector<std::string> kNetNames = {"gain",
                                            "scale",
                                            "embed.weight",
                                            "body.0.weight",
                                            "body.1.weight",
                                            "body.1.bias",
                                            "body.1.running_mean",
                                            "body.1.running_var",
                                            "body.1.num_batches_tracked",
                                            "head.weight",
                                            "head.bias"};

/// Returns a Net in which every number differs from that of a new Net.
Net trained_net() {
  Net net;
  torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : net->parameters()) parameter.copy_(at::rand_like(parameter));
  for (at::Tensor& buffer : net->buffers()) buffer.add_(3);
  net->eval();
  return net;
}

TensorDict copy_of(const TensorDict& tree) {
  TensorDict copy;
  for (const std::string& key : tree.keys()) {
    const Tensor from = tree.at(key);
    Tensor to = Tensor::zeros(from.dtype(), from.shape());
    std::memcpy(to.mutable_raw_data(), bytes_of(from).data(), to.nbytes());
    copy.set(key, to);
  }
  return copy;
}

template <class A, class B>
void expect_same(A& a, B& b) {
  const TensorDict x = state_dict(a);
  const TensorDict y = state_dict(b);
  ASSERT_EQ(x.keys(), y.keys());
  for (const std::string& key : x.keys())
    EXPECT_EQ(bytes_of(x.at(key)), bytes_of(y.at(key))) << key;
}

TEST(StateDict, MatchesNamesAndOrderOfPythonAndSharesMemory) {
  Net net;
  const TensorDict state = state_dict(*net);
  EXPECT_EQ(state.keys(), kNetNames);
  EXPECT_EQ(state.kind(), NodeKind::ordered_dict);
  EXPECT_EQ(state.at("gain").raw_data(), net->gain.const_data_ptr());
  EXPECT_EQ(state.at("body.1.num_batches_tracked").dtype(), DType::int64);
  EXPECT_EQ(state.at("body.1.num_batches_tracked").ndim(), 0);
}

TEST(StateDict, CopiesLazyViewsAndKeepsSharedStorage) {
  struct Holder : torch::nn::Module {};
  Holder holder;
  const at::Tensor negative = at::_neg_view(at::ones({3}));
  holder.register_buffer("a", negative);
  holder.register_buffer("b", negative);
  const TensorDict state = state_dict(holder);
  EXPECT_THAT(test::values<float>(state.at("a")), ElementsAre(-1, -1, -1));
  EXPECT_EQ(state.at("a").raw_data(), state.at("b").raw_data());
}

TEST(StateDict, NamesATensorThatCannotBeSaved) {
  struct Holder : torch::nn::Module {};
  Holder holder;
  holder.register_buffer("mask", at::eye(3).to_sparse());
  const auto error = thrown_by([&] { state_dict(holder); });
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_EQ(error.message,
            "module: tensor \"mask\": it cannot be saved: expected a dense tensor, found one of "
            "layout Sparse");
}

TEST(StateDict, AcceptsAnyTypeWithNamedParametersAndBuffers) {
  struct Plain {
    using Tensors = std::vector<std::pair<std::string, at::Tensor>>;
    Tensors named_parameters() const { return {{"w", w}}; }
    Tensors named_buffers() const { return {{"b", b}}; }
    at::Tensor w = at::ones({2});
    at::Tensor b = at::zeros({3});
  };
  const Plain plain;
  EXPECT_THAT(state_dict(plain).keys(), ElementsAre("w", "b"));

  torch::jit::Module script("outer");
  torch::jit::Module inner("inner");
  inner.register_parameter("w", at::ones({2}), false);
  inner.register_buffer("b", at::ones({2}));
  script.register_module("inner", inner);
  script.register_parameter("v", at::ones({1}), false);
  EXPECT_THAT(state_dict(script).keys(), ElementsAre("v", "inner.w", "inner.b"));
  TensorDict source;
  source.set("v", counting({1}, 5));
  source.set("inner.w", counting({2}, 6));
  source.set("inner.b", counting({2}, 8));
  EXPECT_TRUE(load_into(script, source).ok());
  EXPECT_EQ(script.attr("inner").toModule().attr("b").toTensor()[1].item<float>(), 9);
}

class ModuleFile : public testing::TestWithParam<std::string> {
 protected:
  Path path() const { return folder_ / GetParam(); }

  test::TemporaryFolder folder_;
};

TEST_P(ModuleFile, RoundTripsIntoTheSameTensors) {
  Net trained = trained_net();
  save(state_dict(*trained), path());
  Net net;
  net->eval();
  const void* before = net->gain.const_data_ptr();
  const LoadReport report = load_into(*net, path());
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(report.loaded, testing::UnorderedElementsAreArray(kNetNames));
  EXPECT_EQ(net->gain.const_data_ptr(), before);
  expect_same(*net, *trained);
  const at::Tensor tokens = at::tensor({0, 3, 5, 1}, at::kLong);
  EXPECT_TRUE(at::equal(net(tokens), trained(tokens)));
}

TEST_P(ModuleFile, StoresTiedTensorsOnceAndLoadsThemTied) {
  Net trained = trained_net();
  save(state_dict(*trained), path());
  EXPECT_EQ(open(path()).keys().size(), kNetNames.size());
  const TensorDict loaded = load(path());
  EXPECT_EQ(loaded.at("embed.weight").raw_data(), loaded.at("head.weight").raw_data());
}

TEST_P(ModuleFile, FindsAModelInsideACheckpoint) {
  Net trained = trained_net();
  TensorDict checkpoint;
  checkpoint.set("model", state_dict(*trained));
  checkpoint.set("epoch", Value(3));
  save(checkpoint, path());
  Net net;
  EXPECT_TRUE(load_into(*net, open(path())["model"]).ok());
  expect_same(*net, *trained);
  Net renamed;
  const auto drop = [](const std::string& name) { return name.substr(std::strlen("model.")); };
  EXPECT_TRUE(load_into(*renamed, path(), {.rename = drop, .num_threads = 1}).ok());
  expect_same(*renamed, *trained);
}

TEST_P(ModuleFile, ListsEveryDifferenceBeforeChangingAnything) {
  Net trained = trained_net();
  TensorDict tree = copy_of(state_dict(*trained));
  TensorDict source;
  for (const std::string& key : tree.keys()) {
    if (key != "gain") source.set(key, tree.get(key));
  }
  source.set("extra", counting({2}));
  source.set("head.bias", counting({7}));
  source.set("scale", Tensor::zeros(DType::float64, {}));
  save(source, path());
  Net net, untouched;
  load_into(*untouched, state_dict(*net));
  const auto error = thrown_by([&] { load_into(*net, path()); });
  EXPECT_EQ(error.code, ErrorCode::invalid_argument);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("1 missing, 1 unexpected, 2 mismatched"), HasSubstr("\"gain\""),
                    HasSubstr("\"extra\""),
                    HasSubstr("\"head.bias\": expected float32 [6], found float32 [7]"),
                    HasSubstr("\"scale\": expected float32 [], found float64 []")));
  expect_same(*net, *untouched);

  EXPECT_EQ(load_into(*net, path(), {.strict = false, .dry_run = true}).loaded.size(), 8U);
  expect_same(*net, *untouched);

  const LoadReport report = load_into(*net, path(), {.strict = false, .cast = true});
  EXPECT_THAT(report.missing, ElementsAre("gain"));
  EXPECT_THAT(report.unexpected, ElementsAre("extra"));
  ASSERT_EQ(report.mismatched.size(), 1U);
  EXPECT_EQ(report.mismatched[0].name, "head.bias");
  EXPECT_EQ(net->scale.item<float>(), 0);
  EXPECT_TRUE(at::equal(net->embed->weight, trained->embed->weight));
  EXPECT_TRUE(at::equal(net->gain, untouched->gain));
}

TEST_P(ModuleFile, LoadsIntoStridedTensorsAndLazyViews) {
  struct Holder : torch::nn::Module {};
  Holder holder;
  const at::Tensor transposed = at::zeros({3, 2}).t();
  const at::Tensor base = at::ones({3});
  holder.register_buffer("transposed", transposed);
  holder.register_buffer("negative", at::_neg_view(base));
  holder.register_buffer("empty", at::zeros({0, 3}));
  TensorDict source;
  source.set("transposed", counting({2, 3}));
  source.set("negative", counting({3}, 1));
  source.set("empty", Tensor::zeros(DType::float32, {0, 3}));
  save(source, path());
  EXPECT_TRUE(load_into(holder, path()).ok());
  EXPECT_TRUE(at::equal(transposed, at::arange(6, at::kFloat).view({2, 3})));
  EXPECT_TRUE(at::equal(base, at::tensor({-1.F, -2.F, -3.F})));
}

INSTANTIATE_TEST_SUITE_P(Formats, ModuleFile, testing::Values("model", "model.safetensors"),
                         [](const auto& format) {
                           return format.param == "model" ? "folder" : "safetensors";
                         });

TEST(LoadIntoModule, UsesTheLastOfSharedNames) {
  Net trained = trained_net();
  const TensorDict source = copy_of(state_dict(*trained));
  std::memset(source.at("embed.weight").mutable_raw_data(), 0, source.at("embed.weight").nbytes());
  Net net;
  EXPECT_TRUE(load_into(*net, source).ok());
  EXPECT_TRUE(at::equal(net->embed->weight, trained->head->weight));

  TensorDict without_last;
  without_last.set("embed.weight", source.get("embed.weight"));
  EXPECT_THAT(load_into(*net, without_last, {.strict = false}).loaded, ElementsAre("embed.weight"));
  EXPECT_EQ(net->head->weight.abs().sum().item<float>(), 0);
}

TEST(LoadIntoModule, BackwardThroughOverwrittenValuesThrows) {
  torch::nn::Linear layer(3, 3);
  const at::Tensor loss = layer(layer(at::ones({1, 3}))).sum();  // its backward needs the weight
  load_into(*layer, copy_of(state_dict(*layer)));
  EXPECT_THROW(loss.backward(), c10::Error);
  EXPECT_NO_THROW(layer(layer(at::ones({1, 3}))).sum().backward());

  Net net;
  const auto versions = [&] {
    return std::pair(net->embed->weight._version(), net->head->weight._version());
  };
  const auto before = versions();
  load_into(*net, copy_of(state_dict(*net)));
  EXPECT_GT(versions().first, before.first);
  EXPECT_GT(versions().second, before.second);
}

TEST(LoadIntoModule, NamesATensorThatCannotBeWritten) {
  struct Holder : torch::nn::Module {};
  Holder holder;
  holder.register_buffer("mask", at::empty({2}, at::TensorOptions(at::kMeta)));
  const auto error = thrown_by([&] { load_into(holder, TensorDict()); });
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_EQ(error.message,
            "target: tensor \"mask\": it cannot be written in place: expected a dense tensor, "
            "found one on the meta device, which has no bytes");
}

/// Returns a field of /proc/self/status, in bytes.
std::uint64_t status(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(field + ":")) continue;
    std::uint64_t kibibytes = 0;
    std::istringstream(line.substr(field.size() + 1)) >> kibibytes;
    return kibibytes << 10;
  }
  return 0;
}

TEST(LoadIntoModule, NeedsNoSecondCopyInMemory) {
  constexpr std::int64_t kMebibyte = 1 << 20;
  const test::TemporaryFolder folder;
  torch::nn::Linear layer(torch::nn::LinearOptions(16, 4 * kMebibyte).bias(false));  // 256 MiB
  save(state_dict(*layer), folder / "model.safetensors", {.durable = false, .checksums = false});
  if (!(std::ofstream("/proc/self/clear_refs") << 5).flush()) {
    GTEST_SKIP() << "the kernel does not let the high-water mark be reset";
  }
  const std::uint64_t before = status("VmRSS");
  EXPECT_TRUE(load_into(*layer, folder / "model.safetensors").ok());
  EXPECT_LT(status("VmHWM"), before + 16 * kMebibyte);
}

TEST(StateDict, AcceptsModuleHoldersAndPointers) {
  Net net;
  const auto pointer = net.ptr();
  EXPECT_EQ(state_dict(net).keys(), kNetNames);
  EXPECT_EQ(state_dict(pointer).keys(), kNetNames);
  Net other;
  EXPECT_TRUE(load_into(other, state_dict(net)).ok());
  expect_same(other, *net);
  torch::nn::Linear empty(nullptr);
  EXPECT_THROW(state_dict(empty), Error);
}

TEST(FromTorch, ElementsHaveTorchsTypes) {
  const Tensor halves = from_torch(torch::full({2}, 0.5, torch::kHalf));
  EXPECT_EQ(halves.data<at::Half>()[1], at::Half(0.5F));
  EXPECT_EQ(halves.at<Half>(1), 0.5F);
  const Tensor brains = from_torch(torch::ones({1}, torch::kBFloat16));
  EXPECT_EQ(brains.span<at::BFloat16>()[0], at::BFloat16(1));
}

}  // namespace
}  // namespace tenfold
