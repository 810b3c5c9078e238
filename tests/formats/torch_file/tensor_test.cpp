#include "formats/torch_file/tensor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/tensor/leaf_bytes.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/torch_file/saved_by_torch.hpp"
#include "support/values.hpp"

namespace tenfold::test {
namespace {

using namespace std::string_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using TorchTensor = SavedByTorch;

constexpr const char* kUtils = "torch._utils";

TEST_F(TorchTensor, WithoutRequiresGradIsReadAsTorch01WroteIt) {
  const std::string file = storage<float>("FloatStorage", {1, 2, 3, 4, 5, 6});
  const Leaf found = leaf(pickled::call(
      kUtils, "_rebuild_tensor", {file, pickled::integer(1), lengths({2, 2}), lengths({2, 1})}));
  EXPECT_EQ(found.shape(), (Shape{2, 2}));
  EXPECT_EQ(found.grad(), Grad::none);
  EXPECT_THAT(values<float>(found.tensor()), ElementsAre(2, 3, 4, 5));
}

TEST_F(TorchTensor, ThatRequiresGradIsMarked) {
  const Leaf found = leaf(rebuilt(arguments(storage<float>("FloatStorage", {1}), {1}, true)));
  EXPECT_EQ(found.grad(), Grad::required);
}

TEST_F(TorchTensor, OfIntegersCannotRequireGrad) {
  EXPECT_THAT(corrupt(rebuilt(arguments(storage<std::int64_t>("LongStorage", {1}), {1}, true))),
              HasSubstr("key \"x\": requires_grad: expected a tensor of floating-point or complex "
                        "numbers, found int64"));
}

TEST_F(TorchTensor, NeedsABoolAsRequiresGrad) {
  pickled::Values given = arguments(storage<float>("FloatStorage", {1}), {1});
  given[4] = pickled::integer(1);
  EXPECT_THAT(corrupt(rebuilt(given)), HasSubstr("requires_grad: expected a bool, found an int"));
}

TEST_F(TorchTensor, OfAnUntypedStorageNeedsADtype) {
  const std::string bytes = pickled::persistent(
      pickled::tuple({pickled::text("storage"), pickled::global("torch.storage", "UntypedStorage"),
                      pickled::text("0"), pickled::text("cpu"), pickled::integer(4)}));
  storage<float>("FloatStorage", {7});
  EXPECT_THAT(corrupt(rebuilt(arguments(bytes, {1}))),
              HasSubstr("storage: expected one with a dtype, found one without"));
  pickled::Values given = arguments(bytes, {1});
  given.push_back(pickled::global("torch", "float32"));
  EXPECT_THAT(values<float>(leaf(pickled::call(kUtils, "_rebuild_tensor_v3", given)).tensor()),
              ElementsAre(7));
  given.back() = pickled::global("torch", "strided");
  EXPECT_THAT(problem(pickled::call(kUtils, "_rebuild_tensor_v3", given)),
              HasSubstr("dtype: it cannot be read: expected a dtype of torch, "
                        "found \"torch.strided\""));
}

TEST_F(TorchTensor, NamesWhatIsWrongWithItsStorage) {
  const auto of = [&](const pickled::Values& id) {
    return rebuilt(arguments(pickled::persistent(pickled::tuple(id)), {1}));
  };
  const std::string name = pickled::text("storage");
  const std::string type = pickled::global("torch", "FloatStorage");
  const std::string key = pickled::text("0");
  const std::string place = pickled::text("cpu");
  const std::string one = pickled::integer(1);
  storage<float>("FloatStorage", {7});
  EXPECT_EQ(leaf(of({name, type, key, place, one, pickled::none()})).shape(), Shape{1});
  EXPECT_THAT(problem(of({name, type, key, place, one, pickled::tuple({key})})),
              HasSubstr("a view of a storage cannot be read: expected a whole one, found a tuple"));
  EXPECT_THAT(problem(of({name, type, key, place})),
              HasSubstr("expected (\"storage\", class, key, location, size), found a tuple"));
  EXPECT_THAT(corrupt(of({name, name, key, place, one})),
              HasSubstr("storage: expected a class, found text"));
  EXPECT_THAT(corrupt(of({name, type, one, place, one})),
              HasSubstr("storage key: expected a string, found an integer"));
  EXPECT_THAT(corrupt(rebuilt(arguments(one, {1}))),
              HasSubstr("storage: expected a storage of the file, found an integer"));
}

TEST_F(TorchTensor, WithMetadataOtherThanConjAndNegIsRefused) {
  pickled::Values given = arguments(storage<float>("FloatStorage", {1}), {1});
  given.push_back(pickled::integer(1));
  EXPECT_THAT(corrupt(rebuilt(given)), HasSubstr("metadata: expected a dict, found an integer"));
  given.back() = pickled::dict({pickled::text("zero"), pickled::boolean(false)});
  EXPECT_EQ(leaf(rebuilt(given)).shape(), Shape{1});
  given.back() = pickled::dict({pickled::text("zero"), pickled::boolean(true)});
  EXPECT_THAT(problem(rebuilt(given)), HasSubstr("expected \"conj\" or \"neg\", found \"zero\""));
}

TEST_F(TorchTensor, NegativeViewOfIntegersIsRefused) {
  pickled::Values given = arguments(storage<std::int64_t>("LongStorage", {1}), {1});
  given.push_back(pickled::dict({pickled::text("neg"), pickled::boolean(true)}));
  EXPECT_THAT(problem(rebuilt(given)),
              AllOf(HasSubstr("a negative view cannot be read: expected floating-point or complex "
                              "numbers, found int64"),
                    HasSubstr("resolve_neg()")));
}

TEST_F(TorchTensor, LazyViewsOfOneTensorShareMemoryWithTheSameViewOnly) {
  const std::string file = storage<float>("FloatStorage", {1, -2});
  const auto marked = [&](const char* mark) {
    pickled::Values given = arguments(file, {2});
    given.push_back(pickled::dict({pickled::text(mark), pickled::boolean(true)}));
    return rebuilt(given);
  };
  const TensorDict tree = open(pickled::tuple({marked("neg"), marked("neg"), marked("conj")}))["x"];
  const auto part = [&](const char* key) { return std::get<Leaf>(tree.get(key)); };
  EXPECT_THAT(values<float>(part("0").tensor()), ElementsAre(-1, 2));
  EXPECT_NE(stored_range(part("0")), StoredRange{});
  EXPECT_EQ(stored_range(part("0")), stored_range(part("1")));
  // The conjugate of real numbers is the stored tensor itself.
  EXPECT_THAT(values<float>(part("2").tensor()), ElementsAre(1, -2));
  EXPECT_NE(stored_range(part("0")), stored_range(part("2")));
  const std::vector<Leaf> parts = source_of(part("0"))->parts(part("0"));
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(stored_range(parts[0]), stored_range(part("2")));
  EXPECT_EQ(source_of(part("0"))->where(part("0")).text(),
            path_.string() + ": record \"archive/data/0\"");
}

TEST_F(TorchTensor, LazyViewOfAStridedTensorIsInMemory) {
  pickled::Values given = arguments(storage<float>("FloatStorage", {1, 2, 3, 4}), {2, 2});
  given[3] = lengths({1, 2});
  given.push_back(pickled::dict({pickled::text("neg"), pickled::boolean(true)}));
  const Leaf found = leaf(rebuilt(given));
  EXPECT_THAT(values<float>(found.tensor()), ElementsAre(-1, -3, -2, -4));
  EXPECT_EQ(source_of(found)->where(found).text(), "tensor in memory");
}

TEST_F(TorchTensor, OfAnotherDeviceHasTheDtypeThatTheCallNames) {
  // torch stored bfloat16 tensors of XLA as float32, because NumPy has no bfloat16.
  for (const char* function :
       {"_rebuild_device_tensor_from_numpy", "_rebuild_device_tensor_from_cpu_tensor"}) {
    for (const bool is_trained : {false, true}) {
      pickled::Values given = {floats({1, -2.5}, {2}), pickled::global("torch", "float32"),
                               pickled::text("xla:0"), pickled::boolean(is_trained)};
      const Leaf same = leaf(pickled::call(kUtils, function, given));
      EXPECT_THAT(values<float>(same.tensor()), ElementsAre(1, -2.5)) << function;
      EXPECT_EQ(same.grad(), is_trained ? Grad::required : Grad::none) << function;
      given[1] = pickled::global("torch", "bfloat16");
      const Leaf narrow = leaf(pickled::call(kUtils, function, given));
      EXPECT_EQ(narrow.dtype(), DType::bfloat16) << function;
      EXPECT_EQ(read_bytes(narrow), "\x80\x3f\x20\xc0") << function;
      EXPECT_EQ(narrow.grad(), is_trained ? Grad::required : Grad::none) << function;
    }
  }
}

TEST_F(TorchTensor, OfAnotherDeviceNeedsADtypeToWhichItCanBeConverted) {
  const auto on_device = [&](const std::string& tensor, const std::string& dtype) {
    return pickled::call(kUtils, "_rebuild_device_tensor_from_cpu_tensor",
                         {tensor, dtype, pickled::text("xla:0"), pickled::boolean(false)});
  };
  EXPECT_THAT(problem(on_device(floats({1}, {1}), pickled::text("float32"))),
              HasSubstr("dtype: it cannot be read: expected a dtype of torch, found text"));
  EXPECT_THAT(problem(on_device(floats({1}, {1}), pickled::global("torch", "float4_e2m1fn_x2"))),
              HasSubstr("found float4_e2m1fn_x2 for a tensor of float32"));
  // A stride of 0 repeats one number 2^50 times, which is more than any memory can hold.
  pickled::Values repeated = arguments(storage<float>("FloatStorage", {1}), {1});
  repeated[2] = lengths({std::int64_t{1} << 50});
  repeated[3] = lengths({0});
  EXPECT_THAT(problem(on_device(rebuilt(repeated), pickled::global("torch", "bfloat16"))),
              HasSubstr("expected that of the stored tensor, or contiguous elements that can be "
                        "converted, found bfloat16 for a tensor of float32"));
}

TEST_F(TorchTensor, InsideAnotherCallMustBeCreatedByACall) {
  const auto parameter = [&](const std::string& inner) {
    return pickled::call(kUtils, "_rebuild_parameter",
                         {inner, pickled::boolean(true), pickled::dict({})});
  };
  EXPECT_EQ(leaf(parameter(floats({1}, {1}))).grad(), Grad::parameter);
  EXPECT_THAT(corrupt(parameter(pickled::integer(1))),
              HasSubstr("tensor: expected a call that creates it, found an integer"));
  EXPECT_THAT(problem(parameter(pickled::call("os", "system", {pickled::text("true")}))),
              AllOf(HasSubstr("found \"os.system\""), HasSubstr("no module was imported")));
}

TEST_F(TorchTensor, AttributesOfAParameterAreIgnoredWithAWarning) {
  const auto parameter = [&](const std::string& state) {
    return pickled::call(kUtils, "_rebuild_parameter_with_state",
                         {floats({1}, {1}), pickled::boolean(false), pickled::dict({}), state});
  };
  const Warnings warnings;
  EXPECT_EQ(leaf(parameter(pickled::none())).grad(), Grad::frozen_parameter);
  const std::string compiled = pickled::dict({pickled::text("_dynamo_dynamic"), pickled::none()});
  EXPECT_EQ(leaf(parameter(compiled)).grad(), Grad::frozen_parameter);
  EXPECT_THAT(Warnings::messages(), IsEmpty());
  for (const std::string& state :
       {pickled::dict({pickled::text("my_mark"), pickled::none()}), pickled::tuple({compiled})}) {
    Warnings::messages().clear();
    EXPECT_EQ(leaf(parameter(state)).grad(), Grad::frozen_parameter);
    EXPECT_THAT(Warnings::messages(),
                ElementsAre(AllOf(HasSubstr("x.pt: key \"x\""),
                                  HasSubstr("the tensor's attributes are ignored"))));
  }
}

/// The arguments of _rebuild_from_type_v2 that make a tensor of the class `type`.
pickled::Values of_type(const std::string& type, const pickled::Values& arguments) {
  return {pickled::global(kUtils, "_rebuild_tensor_v2"), type, pickled::tuple(arguments),
          pickled::dict({pickled::text("mark"), pickled::integer(1)})};
}

TEST_F(TorchTensor, OfAPlainClassWithAttributesIsReadWithAWarning) {
  const Warnings warnings;
  for (const auto& [module, name] :
       {std::pair("torch", "Tensor"), std::pair("torch.nn.parameter", "Parameter"),
        std::pair("torch.nn.parameter", "Buffer")}) {
    Warnings::messages().clear();
    const auto given = of_type(pickled::global(module, name),
                               arguments(storage<float>("FloatStorage", {4, 5}), {2}));
    const Leaf found = leaf(pickled::call("torch._tensor", "_rebuild_from_type_v2", given));
    EXPECT_THAT(values<float>(found.tensor()), ElementsAre(4, 5)) << name;
    EXPECT_EQ(Warnings::messages().size(), 1U) << name;
  }
}

TEST_F(TorchTensor, AttributesThatAreRepeatedTooOftenAreRefused) {
  constexpr std::size_t kTimes = 2000;
  pickled::Values pairs;
  for (std::size_t i = 0; i < kTimes; ++i) {
    pairs.push_back(pickled::text("_dynamo_" + std::to_string(i)));
    pairs.push_back(pickled::none());
  }
  const std::string one = pickled::call(
      "torch._tensor", "_rebuild_from_type_v2",
      {pickled::global(kUtils, "_rebuild_tensor_v2"), pickled::global("torch", "Tensor"),
       pickled::tuple(arguments(storage("FloatStorage", std::vector<float>{1}), {1})), "h\0"s});
  // Stores the attributes in slot 0 of the memo, so that "h\0" refers to them.
  write(pickled::dict(pairs) + "q\0"s + "0" + pickled::list(pickled::Values(kTimes, one)));
  EXPECT_THAT(message_of([&] { detail::formats::torch_file::kFormat.open(path_, {}); },
                         ErrorCode::unsupported),
              HasSubstr("the pickle repeats shared objects too often"));
}

TEST_F(TorchTensor, OfAnUnknownClassIsOpaque) {
  const TensorDict found =
      node(pickled::call("torch._tensor", "_rebuild_from_type_v2",
                         of_type(pickled::global("my_net", "MyTensor"),
                                 arguments(storage<float>("FloatStorage", {4, 5}), {2}))));
  EXPECT_EQ(found.kind(), NodeKind::opaque);
  EXPECT_EQ(found.info().class_name, "torch._tensor._rebuild_from_type_v2");
  EXPECT_EQ(found.info().problem, "");
}

TEST_F(TorchTensor, OfAPlainClassNeedsAKnownFunctionAndATuple) {
  const auto rebuilt_by = [&](std::size_t i, const std::string& argument) {
    auto given = of_type(pickled::global("torch", "Tensor"),
                         arguments(storage<float>("FloatStorage", {4, 5}), {2}));
    given[i] = argument;
    return pickled::call("torch._tensor", "_rebuild_from_type_v2", given);
  };
  EXPECT_THAT(corrupt(rebuilt_by(0, pickled::text("f"))),
              HasSubstr("expected a function and a tuple, found text and a tuple"));
  EXPECT_THAT(corrupt(rebuilt_by(2, pickled::none())),
              HasSubstr("found \"torch._utils._rebuild_tensor_v2\" and None"));
  EXPECT_THAT(problem(rebuilt_by(0, pickled::global("os", "system"))),
              HasSubstr("found \"os.system\""));
  EXPECT_THAT(problem(rebuilt_by(0, pickled::global(kUtils, "_rebuild_tensor_v9"))),
              HasSubstr("found \"torch._utils._rebuild_tensor_v9\""));
}

TEST_F(TorchTensor, QuantizedNeedsAStorageOfQuantizedElements) {
  const std::string scheme = pickled::tuple(
      {pickled::global("torch", "per_tensor_affine"), pickled::number("0.5"), pickled::integer(0)});
  const auto quantized = [&](const std::string& storage, const std::string& given) {
    return pickled::call(kUtils, "_rebuild_qtensor",
                         {storage, pickled::integer(0), lengths({2}), lengths({1}), given,
                          pickled::boolean(false), pickled::dict({})});
  };
  const std::string file = storage<std::int32_t>("QInt32Storage", {7, -8});
  const TensorDict found = node(quantized(file, scheme));
  EXPECT_THAT(values<std::int32_t>(found.at("int_repr")), ElementsAre(7, -8));
  EXPECT_EQ(found.value("scale"), Value(0.5));
  const std::string bytes = pickled::persistent(
      pickled::tuple({pickled::text("storage"), pickled::global("torch.storage", "UntypedStorage"),
                      pickled::text("0"), pickled::text("cpu"), pickled::integer(8)}));
  EXPECT_THAT(corrupt(quantized(bytes, scheme)),
              HasSubstr("expected a storage of quantized elements, found bytes"));
  EXPECT_THAT(problem(quantized(file, pickled::tuple({pickled::global("torch", "per_row")}))),
              AllOf(HasSubstr("per tensor or per channel"), HasSubstr("dequantize()")));
}

/// The sizes, strides and offsets of a nested tensor whose buffer contains the numbers from 1 on.
/// `shape` is the shape of the tensor that holds the sizes.
struct Nested {
  std::vector<std::int64_t> sizes = {1, 2, 2, 2};
  Shape shape = {2, 2};
  std::vector<std::int64_t> strides = {2, 1, 2, 1};
  std::vector<std::int64_t> offsets = {0, 2};
};

class TorchNested : public SavedByTorch {
 protected:
  std::string nested(const Nested& given) {
    return pickled::call(kUtils, "_rebuild_nested_tensor",
                         {floats({1, 2, 3, 4, 5, 6}, {6}), longs(given.sizes, given.shape),
                          longs(given.strides, given.shape),
                          longs(given.offsets, {static_cast<std::int64_t>(given.offsets.size())})});
  }
};

TEST_F(TorchNested, TensorIsALeafOfItsComponents) {
  const Leaf found = leaf(nested({}));
  EXPECT_TRUE(found.is_nested());
  EXPECT_EQ(found.sizes().shape(), (Shape{2, 2}));
  EXPECT_THAT(values<std::int64_t>(found.sizes()), ElementsAre(1, 2, 2, 2));
  EXPECT_THAT(values<float>(found.tensor()), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(leaf(nested({.strides = {99, 1, 2, 1}})).shape(), (Shape{2, 2}))
      << "the stride of a dimension of length 1 is arbitrary";
}

TEST_F(TorchNested, TensorWithComponentsThatAreNotPackedIsRefused) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::pair<const char*, Nested>> cases = {
      {"transposed", {.strides = {2, 1, 1, 2}}},
      {"with a gap", {.offsets = {0, 3}}},
      {"before the buffer", {.offsets = {-1, 1}}},
      {"too few offsets", {.offsets = {0}}},
      {"negative length", {.sizes = {-1, 2, 2, 2}}},
      {"length that overflows", {.sizes = {kHuge, kHuge, 2, 2}}},
      {"sizes of one dimension", {.sizes = {6}, .shape = {1}, .strides = {1}, .offsets = {0}}}};
  for (const auto& [name, given] : cases) {
    EXPECT_THAT(problem(nested(given)),
                AllOf(HasSubstr("nested tensor: expected contiguous components, found other "
                                "offsets or strides"),
                      HasSubstr("contiguous()")))
        << name;
  }
}

TEST_F(TorchNested, TensorThatDoesNotFillItsBufferIsCorrupt) {
  EXPECT_THAT(corrupt(nested({.sizes = {1, 2, 1, 2}})), HasSubstr("key \"x\""));
}

TEST_F(TorchNested, TensorNeedsTensors) {
  const std::string sizes = longs({6}, {1, 1});
  EXPECT_THAT(corrupt(pickled::call(kUtils, "_rebuild_nested_tensor",
                                    {pickled::none(), sizes, sizes, sizes})),
              HasSubstr("nested tensor: expected tensors, found None"));
  EXPECT_THAT(corrupt(pickled::call(kUtils, "_rebuild_nested_tensor", {sizes})),
              HasSubstr("_rebuild_nested_tensor: expected 4 arguments, found 1"));
}

std::string meta_tensor() {
  return pickled::call(kUtils, "_rebuild_meta_tensor_no_storage",
                       {pickled::global("torch", "float32"), pickled::tuple({pickled::integer(2)}),
                        pickled::tuple({pickled::integer(1)}), pickled::boolean(false)});
}
const std::string kFoundMeta =
    "values: expected a tensor, found \"torch._utils._rebuild_meta_tensor_no_storage\"";

class TorchSparse : public SavedByTorch {
 protected:
  std::string sparse(const std::string& layout, const pickled::Values& parts) {
    return pickled::call(
        kUtils, "_rebuild_sparse_tensor",
        {pickled::call("torch.serialization", "_get_layout", {pickled::text(layout)}),
         pickled::tuple(parts)});
  }
};

TEST_F(TorchSparse, TensorKeepsWhetherItIsCoalesced) {
  const std::string indices = longs({0, 1}, {1, 2});
  const std::string numbers = floats({5, 6}, {2});
  for (const bool is_coalesced : {false, true}) {
    const TensorDict found = node(sparse(
        "torch.sparse_coo", {indices, numbers, lengths({3}), pickled::boolean(is_coalesced)}));
    EXPECT_EQ(found.kind(), NodeKind::sparse);
    EXPECT_EQ(found.info().is_coalesced, is_coalesced);
    EXPECT_EQ(found.info().dense_shape, Shape{3});
  }
  EXPECT_THAT(
      corrupt(sparse("torch.sparse_coo", {indices, numbers, lengths({3}), pickled::text("yes")})),
      HasSubstr("sparse tensor: is_coalesced: expected a bool or None, found text"));
}

TEST_F(TorchSparse, TensorNeedsAKnownLayoutAndItsParts) {
  const std::string indices = longs({0, 1}, {1, 2});
  EXPECT_THAT(problem(sparse("torch.strided", {indices, indices, lengths({3})})),
              HasSubstr("found \"strided\" and 3 parts"));
  EXPECT_THAT(problem(sparse("torch.sparse_coo", {indices, indices})),
              HasSubstr("found \"sparse_coo\" and 2 parts"));
  EXPECT_THAT(corrupt(sparse("torch.sparse_coo", {indices, pickled::none(), lengths({3})})),
              HasSubstr("sparse tensor: values: expected a tensor, found another value"));
  EXPECT_THAT(problem(sparse("torch.sparse_coo", {indices, meta_tensor(), lengths({3})})),
              HasSubstr("sparse tensor: " + kFoundMeta));
}

class TorchJagged : public SavedByTorch {
 protected:
  static std::string jagged(const std::string& parts) {
    return pickled::call("torch._tensor", "_rebuild_from_type_v2",
                         {pickled::global("torch.nested._internal.nested_tensor", "_rebuild_njt"),
                          pickled::global("torch.nested._internal.nested_tensor", "NestedTensor"),
                          pickled::tuple({parts}), pickled::none()});
  }
  std::string of(const std::string& offsets, std::int64_t ragged) {
    return jagged(
        pickled::dict({pickled::text("values"), floats({1, 2, 3}, {3}), pickled::text("offsets"),
                       offsets, pickled::text("lengths"), pickled::none(),
                       pickled::text("_ragged_idx"), pickled::integer(ragged)}));
  }
};

TEST_F(TorchJagged, TensorHasOneRaggedDimension) {
  const TensorDict found = node(of(longs({0, 1, 3}, {3}), 1));
  EXPECT_EQ(found.kind(), NodeKind::sparse);
  EXPECT_EQ(found.info().layout, "jagged");
  EXPECT_EQ(found.info().dense_shape, (Shape{2, -1}));
  EXPECT_EQ(found.keys(), (std::vector<std::string>{"values", "offsets"}));
}

TEST_F(TorchJagged, TensorNeedsPartsThatFitEachOther) {
  for (const std::int64_t ragged : {0, 2}) {
    EXPECT_THAT(corrupt(of(longs({0, 3}, {2}), ragged)),
                HasSubstr("jagged tensor: expected offsets of shape [n + 1] and a ragged dimension "
                          "from 1 to 1, found offsets of shape [2] and dimension " +
                          std::to_string(ragged)));
  }
  EXPECT_THAT(corrupt(of(longs({0, 3}, {1, 2}), 1)),
              HasSubstr("found offsets of shape [1, 2] and dimension 1"));
  EXPECT_THAT(corrupt(of(pickled::none(), 1)),
              HasSubstr("jagged tensor: offsets: expected a tensor, found another value"));
  EXPECT_THAT(corrupt(jagged(pickled::list({}))),
              HasSubstr("jagged tensor: expected a dict of its parts, found a tuple"));
  EXPECT_THAT(corrupt(jagged(pickled::dict({}))),
              HasSubstr("jagged tensor: values: expected a tensor, found none"));
  EXPECT_THAT(problem(jagged(pickled::dict({pickled::text("values"), meta_tensor()}))),
              HasSubstr("jagged tensor: " + kFoundMeta));
}

class TorchMeta : public SavedByTorch {
 protected:
  static std::string parameter(const std::string& requires_grad) {
    return pickled::call(kUtils, "_rebuild_parameter",
                         {meta_tensor(), requires_grad, pickled::dict({})});
  }
};

TEST_F(TorchMeta, ParameterIsOpaqueAndKeepsRequiresGrad) {
  for (const bool is_trained : {false, true}) {
    const TensorDict found = node(parameter(pickled::boolean(is_trained)));
    EXPECT_EQ(found.kind(), NodeKind::opaque);
    EXPECT_EQ(found.info().class_name, "torch._utils._rebuild_meta_tensor_no_storage");
    EXPECT_THAT(found.info().problem, HasSubstr("a tensor on the meta device has no bytes"));
    EXPECT_EQ(found.value("parameter"), Value(is_trained));
  }
}

TEST_F(TorchMeta, ParameterNeedsABoolAsRequiresGrad) {
  EXPECT_THAT(corrupt(parameter(pickled::integer(1))),
              HasSubstr("requires_grad: expected a bool, found an integer"));
}

/// numpy.dtype(name), with the state that NumPy gives it.
std::string numpy_dtype(const std::string& name, const std::string& order) {
  return pickled::with_state(
      pickled::call("numpy", "dtype",
                    {pickled::text(name), pickled::boolean(false), pickled::boolean(true)}),
      pickled::tuple({pickled::integer(3), pickled::text(order), pickled::none(), pickled::none(),
                      pickled::none(), pickled::integer(-1), pickled::integer(-1),
                      pickled::integer(0)}));
}

std::string scalar(const std::string& dtype, const std::string& bytes) {
  return pickled::call("numpy._core.multiarray", "scalar", {dtype, pickled::bytes(bytes)});
}

std::string integers(const Shape& values) {
  pickled::Values items;
  for (const std::int64_t value : values) items.push_back(pickled::integer(value));
  return pickled::tuple(items);
}

std::string frombuffer(const Shape& shape, const std::string& order, const std::string& bytes,
                       const pickled::Values& axes = {}) {
  pickled::Values arguments = {pickled::bytearray(bytes), numpy_dtype("u1", "|"), integers(shape),
                               pickled::text(order)};
  arguments.insert(arguments.end(), axes.begin(), axes.end());
  return pickled::call("numpy._core.numeric", "_frombuffer", arguments);
}

using NumpyInPickle = SavedByTorch;

TEST_F(NumpyInPickle, ArrayOfProtocol5IsReadInEitherOrder) {
  const Leaf rows = leaf(frombuffer({2, 3}, "C", "abcdef"));
  EXPECT_EQ(mapped_bytes(rows), "abcdef");
  const Leaf columns = leaf(frombuffer({2, 3}, "F", "abcdef"));
  EXPECT_EQ(mapped_bytes(columns), "acebdf");
  EXPECT_THAT(corrupt(frombuffer({2, 3}, "A", "abcdef")),
              HasSubstr("array: order: expected \"C\", \"F\" or \"K\" with axes, found text"));
  EXPECT_EQ(leaf(frombuffer({2, 0}, "F", "")).shape(), (Shape{2, 0}));
}

TEST_F(NumpyInPickle, ArrayOfProtocol5MayBeATranspositionOfItsBuffer) {
  const Leaf moved = leaf(frombuffer({3, 1, 2}, "K", "abcdef", {integers({1, 2, 0})}));
  EXPECT_EQ(moved.shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(mapped_bytes(moved), "acebdf");
  EXPECT_EQ(leaf(frombuffer({2, 0}, "K", "", {integers({1, 0})})).shape(), (Shape{0, 2}));
  EXPECT_EQ(mapped_bytes(leaf(frombuffer({2}, "C", "ab", {pickled::none()}))), "ab");
  for (const Shape& axes : {Shape{0}, Shape{0, 0}, Shape{0, 2}, Shape{0, 1, 2}}) {
    EXPECT_THAT(corrupt(frombuffer({2, 3}, "K", "abcdef", {integers(axes)})),
                HasSubstr("array: axes: expected a permutation of the dimensions"));
  }
  EXPECT_THAT(corrupt(frombuffer({2, 3}, "K", "abcdef")), HasSubstr("array: order"));
}

TEST_F(NumpyInPickle, ArrayMustHaveTheNumberOfBytesOfItsShape) {
  EXPECT_THAT(corrupt(frombuffer({2, 3}, "C", "abcde")),
              HasSubstr("array: its bytes do not fit the shape: expected 6 bytes, found 5"));
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(corrupt(frombuffer({kHuge, 2}, "C", "a")), HasSubstr("shape: too large"));
}

TEST_F(NumpyInPickle, DtypesThatTorchLacksAreRefused) {
  EXPECT_EQ(mapped_bytes(leaf(scalar(numpy_dtype("u1", "|"), "a"))), "a");
  EXPECT_THAT(problem(scalar(numpy_dtype("U3", "<"), "abc")),
              HasSubstr("dtype: torch has no such dtype: expected numbers or bool, found \"U3\""));
  EXPECT_THAT(problem(scalar(pickled::call("numpy", "dtype", {}), "abc")),
              HasSubstr("expected numbers or bool, found none"));
  EXPECT_THAT(problem(scalar(numpy_dtype("i4", ">"), "abcd")),
              HasSubstr("dtype: big-endian elements: expected little-endian ones, found \">i4\""));
  EXPECT_THAT(corrupt(scalar(pickled::call("numpy", "dtype", {pickled::text("i4")}), "abcd")),
              HasSubstr("dtype: expected a state with a byte order, found none"));
  EXPECT_THAT(corrupt(scalar(pickled::text("i4"), "abcd")),
              HasSubstr("dtype: expected a dtype of NumPy, found text"));
}

TEST_F(NumpyInPickle, ArrayNeedsBytesAndAState) {
  EXPECT_THAT(problem(pickled::call("numpy.core.multiarray", "scalar",
                                    {numpy_dtype("u1", "|"), pickled::integer(1)})),
              HasSubstr("array: expected its bytes, found an integer"));
  const std::string start =
      pickled::call("numpy.core.multiarray", "_reconstruct",
                    {pickled::global("numpy", "ndarray"), lengths({0}), pickled::bytes("b")});
  EXPECT_THAT(corrupt(start), HasSubstr("array: expected a state of 5 parts, found another"));
  EXPECT_THAT(corrupt(pickled::with_state(start, pickled::dict({}))),
              HasSubstr("array: expected a state of 5 parts, found another"));
  EXPECT_THAT(problem(pickled::call("numpy.core.multiarray", "_reconstruct",
                                    {pickled::global("numpy", "matrix")})),
              HasSubstr("array: expected numpy.ndarray, found another class"));
  EXPECT_EQ(node(pickled::call("numpy.core.multiarray", "fromfile", {})).info().class_name,
            "numpy.core.multiarray.fromfile");
}

}  // namespace
}  // namespace tenfold::test
