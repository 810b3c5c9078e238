#include "formats/torch_file/tree.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "formats/shared/object_file.hpp"
#include "formats/torch_file/saved_by_torch.hpp"
#include "support/values.hpp"

namespace tenfold::test {
namespace {

using namespace std::string_literals;
using namespace detail::formats;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Special = Value::Special;

using TorchTree = SavedByTorch;

Special special(Special::Type type, std::string text, std::vector<Value> items = {}) {
  return {type, std::move(text), std::move(items)};
}

const std::string kOne = pickled::integer(1);
const std::string kTwo = pickled::integer(2);

TEST_F(TorchTree, OpcodesOfPython3MakeExtendedScalars) {
  using enum Special::Type;
  EXPECT_EQ(value(pickled::set({kOne, kTwo})), Value(special(set, "", {1, 2})));
  EXPECT_EQ(value(pickled::frozenset({kOne})), Value(special(frozenset, "", {1})));
  EXPECT_EQ(value(pickled::bytes("\0\xff"s)), Value(special(bytes, "\0\xff"s)));
  EXPECT_EQ(value(pickled::bytearray("ab")), Value(special(bytearray, "ab")));
}

TEST_F(TorchTree, CallsOfBuiltinClassesMakeExtendedScalars) {
  using enum Special::Type;
  for (const char* module : {"builtins", "__builtin__"}) {
    const auto call = [&](const char* name, const pickled::Values& arguments) {
      return value(pickled::call(module, name, arguments));
    };
    EXPECT_EQ(call("set", {}), Value(special(set, "")));
    EXPECT_EQ(call("frozenset", {pickled::tuple({kOne})}), Value(special(frozenset, "", {1})));
    EXPECT_EQ(call("bytes", {}), Value(special(bytes, "")));
    EXPECT_EQ(call("bytearray", {}), Value(special(bytearray, "")));
    EXPECT_EQ(call("bytearray", {pickled::bytes("a")}), Value(special(bytearray, "a")));
    EXPECT_EQ(call("bytearray", {pickled::text("\xc3\xbf"), pickled::text("latin-1")}),
              Value(special(bytearray, "\xff")));
    EXPECT_EQ(call("complex", {kOne, pickled::number("-2.5")}),
              Value(special(complex, "", {1.0, -2.5})));
  }
}

TEST_F(TorchTree, SizesMayHaveNegativeItems) {
  const auto size = [](const pickled::Values& arguments) {
    return pickled::call("torch", "Size", arguments);
  };
  EXPECT_EQ(value(size({lengths({-1, 3})})), Value(special(Special::Type::size, "", {-1, 3})));
  EXPECT_EQ(value(size({lengths({})})), Value(special(Special::Type::size, "")));
  EXPECT_THAT(corrupt(size({pickled::tuple({pickled::text("a")})})),
              HasSubstr("torch.Size: expected integers, found text"));
  EXPECT_THAT(corrupt(size({kOne})), HasSubstr("torch.Size: expected a tuple, found an integer"));
}

TEST_F(TorchTree, CallsOfBuiltinClassesWithOtherArgumentsAreOpaque) {
  const auto name_of = [&](const char* name, const pickled::Values& arguments) {
    const TensorDict found = node(pickled::call("builtins", name, arguments));
    EXPECT_EQ(found.kind(), NodeKind::opaque);
    return found.info().class_name;
  };
  EXPECT_EQ(name_of("bytearray", {pickled::integer(5)}), "builtins.bytearray");
  EXPECT_EQ(name_of("bytearray", {pickled::text("a"), pickled::text("utf-8")}),
            "builtins.bytearray");
  EXPECT_EQ(name_of("set", {pickled::text("ab")}), "builtins.set");
  EXPECT_THAT(corrupt(pickled::call("builtins", "complex", {kOne, pickled::text("2")})),
              HasSubstr("complex: expected two numbers, found text"));
  EXPECT_THAT(corrupt(pickled::call("builtins", "set", {kOne, kTwo})),
              HasSubstr("set: expected 0 to 1 arguments, found 2"));
}

TEST_F(TorchTree, DevicesAndLayoutsMustBeOnesOfTorch) {
  const auto device = [](const pickled::Values& arguments) {
    return pickled::call("torch", "device", arguments);
  };
  EXPECT_EQ(value(device({pickled::text("cuda"), kOne})),
            Value(special(Special::Type::device, "cuda:1")));
  EXPECT_THAT(corrupt(device({pickled::text("cuda"), pickled::integer(128)})),
              HasSubstr("device: expected a type and optionally an index of at most 127, as in "
                        "\"cuda:0\", found \"cuda:128\""));
  EXPECT_THAT(corrupt(device({kOne})),
              HasSubstr("device: expected a UTF-8 string, found an integer"));
  const auto layout = [](const char* name) {
    return pickled::call("torch.serialization", "_get_layout", {pickled::text(name)});
  };
  EXPECT_EQ(value(layout("torch.strided")), Value(special(Special::Type::layout, "torch.strided")));
  EXPECT_THAT(corrupt(layout("torch.round")),
              HasSubstr("layout: expected a layout of torch, such as \"torch.strided\", found "
                        "\"torch.round\""));
}

TEST_F(TorchTree, SetsOfTensorsAndOfListsAreOpaque) {
  const TensorDict tensors = node(pickled::set({kOne, floats({5}, {1})}));
  EXPECT_EQ(tensors.kind(), NodeKind::opaque);
  EXPECT_EQ(tensors.info().class_name, "set");
  EXPECT_EQ(tensors.info().problem,
            "a set with items that are not supported in a set: expected hashable values, found "
            "tensors or objects");
  EXPECT_EQ(tensors["items"].value("0"), Value(1));
  EXPECT_THAT(values<float>(tensors["items"].at("1")), ElementsAre(5));
  const TensorDict lists = node(pickled::frozenset({pickled::list({kOne})}));
  EXPECT_EQ(lists.info().class_name, "frozenset");
  EXPECT_THAT(lists.info().problem, HasSubstr("found unhashable ones"));
  EXPECT_EQ(lists.value("items"), Value(Value::List{{Value::List{{1}}}}));
}

TEST_F(TorchTree, CountersOfNumbersAreValuesAndOthersAreDicts) {
  const auto counter = [](const pickled::Values& arguments) {
    return pickled::call("collections", "Counter", arguments);
  };
  const std::string key = pickled::text("a");
  EXPECT_EQ(value(counter({pickled::dict({key, kTwo})})),
            Value(special(Special::Type::counter, "", {Value::Object{{{"a", 2}}}})));
  const TensorDict tensors = node(counter({pickled::dict({key, floats({1}, {1})})}));
  EXPECT_EQ(tensors.kind(), NodeKind::dict);
  EXPECT_TRUE(tensors.contains("a"));
  EXPECT_THAT(problem(counter({kOne})),
              HasSubstr("it cannot be read: expected a tensor, a JSON value or a container, found "
                        "an integer"));
  EXPECT_EQ(node(pickled::call("collections", "deque", {})).info().class_name, "collections.deque");
}

TEST_F(TorchTree, OrderedDictsOfPython2AreReadFromListsOfPairs) {
  const auto ordered = [](const pickled::Values& pairs) {
    return pickled::call("collections", "OrderedDict", {pickled::list(pairs)});
  };
  const std::string key = pickled::text("a");
  const TensorDict found = node(ordered(
      {pickled::list({key, floats({1}, {1})}), pickled::tuple({pickled::old_string("b"), kTwo})}));
  EXPECT_EQ(found.kind(), NodeKind::ordered_dict);
  EXPECT_EQ(found.keys(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(found.value("b"), Value(2));
  EXPECT_THAT(problem(ordered({pickled::list({key})})), HasSubstr("found a list"));
  EXPECT_THAT(problem(ordered({kOne})), HasSubstr("found an integer"));
  EXPECT_THAT(problem(pickled::call("collections", "OrderedDict", {kOne})),
              HasSubstr("found an integer"));
}

TEST_F(TorchTree, ItemsWithoutKeysInADictAreCorrupt) {
  EXPECT_THAT(corrupt(pickled::call("collections", "OrderedDict", {}) + kOne + "a"),
              HasSubstr("items without keys are added to a dict: expected pairs of a key and a "
                        "value, found single items"));
}

TEST_F(TorchTree, AttributesOfADictOtherThanMetadataAreIgnoredWithAWarning) {
  const auto with = [&](const std::string& state) {
    return pickled::with_state(pickled::call("collections", "OrderedDict", {}), state);
  };
  const std::string versions = pickled::dict({pickled::text("layer"), kOne});
  const Warnings warnings;
  const std::string filled = pickled::with_state(
      pickled::call("collections", "OrderedDict", {}) + pickled::text("w") + floats({1}, {1}) + "s",
      pickled::dict({pickled::text("_metadata"), versions}));
  EXPECT_EQ(node(filled).info().module_versions, Value(Value::Object{{{"layer", 1}}}));
  EXPECT_EQ(Warnings::messages().size(), 0U);
  const std::string after_another = pickled::with_state(
      pickled::call("collections", "OrderedDict", {}) + pickled::text("w") + floats({1}, {1}) + "s",
      pickled::dict({pickled::text("mark"), kOne, pickled::text("_metadata"), versions}));
  EXPECT_EQ(node(after_another).info().module_versions, Value(Value::Object{{{"layer", 1}}}));
  EXPECT_EQ(Warnings::messages().size(), 1U);
  for (const std::string& state :
       {pickled::dict({pickled::text("mark"), kOne}), kOne,
        pickled::dict({pickled::text("_metadata"), kOne}),
        pickled::dict({pickled::text("_metadata"),
                       pickled::dict({pickled::text("layer"), pickled::global("m", "f")})})}) {
    Warnings::messages().clear();
    EXPECT_EQ(value(with(state)), Value(Value::Object{.members = {}, .ordered = true}));
    EXPECT_THAT(Warnings::messages(),
                ElementsAre(HasSubstr("attributes of the dict are ignored: expected only "
                                      "\"_metadata\", a dict of JSON values, found others")));
  }
}

TEST_F(TorchTree, StateDictsWithoutTensorsKeepTheirMetadata) {
  const std::string versions = pickled::dict({pickled::text("layer"), kOne});
  const TensorDict found = node(pickled::with_state(
      pickled::call("collections", "OrderedDict", {}) + pickled::text("n") + kTwo + "s",
      pickled::dict({pickled::text("_metadata"), versions})));
  EXPECT_EQ(found.kind(), NodeKind::ordered_dict);
  EXPECT_EQ(found.value("n"), Value(2));
  EXPECT_EQ(found.info().module_versions, Value(Value::Object{{{"layer", 1}}}));
}

TEST_F(TorchTree, TheLastOfEqualKeysCounts) {
  const std::string key = pickled::text("a");
  EXPECT_EQ(value(pickled::dict({key, kOne, pickled::text("b"), kTwo, key, kTwo})),
            Value(Value::Object{{{"a", 2}, {"b", 2}}}));
}

TEST_F(TorchTree, DefaultFactoriesAreDroppedIfTheyArePlain) {
  const auto defaults = [](const std::string& factory) {
    return pickled::call("collections", "defaultdict", {factory});
  };
  const Value empty = Value::Object{};
  for (const std::string& factory :
       {pickled::none(), pickled::global("builtins", "list"), pickled::global("__builtin__", "int"),
        pickled::global("__builtin__", "long"), pickled::global("__builtin__", "unicode"),
        pickled::global("collections", "OrderedDict")}) {
    EXPECT_EQ(value(defaults(factory)), empty);
  }
  EXPECT_THAT(problem(defaults(pickled::global("builtins", "eval"))),
              HasSubstr("found \"builtins.eval\""));
  EXPECT_THAT(problem(defaults(pickled::global("my_net", "list"))),
              HasSubstr("found \"my_net.list\""));
  EXPECT_THAT(problem(defaults(kOne)),
              HasSubstr("default_factory of a defaultdict: expected None or a known class of "
                        "Python, such as list, found an integer"));
}

TEST_F(TorchTree, ATupleOfEveryTypeOfKeyIsAKey) {
  const std::string huge = "36893488147419103232";
  const std::string key =
      pickled::tuple({pickled::none(), pickled::boolean(true), pickled::integer(huge),
                      pickled::number("0.5"), pickled::old_string("a")});
  const Value found = value(pickled::dict({key, kOne}));
  const auto& typed = found.get_if<Value::Object>()->typed_keys;
  ASSERT_EQ(typed.size(), 1U);
  EXPECT_EQ(typed[0].second,
            Value(Value::Tuple{{Value(), true, Value(Value::BigInt{huge}), 0.5, "a"}}));
}

TEST_F(TorchTree, KeysOfUnsupportedTypesAreNamedByTheirType) {
  struct Case {
    std::string key;
    const char* name;
  };
  const std::vector<Case> cases = {{pickled::list({}), "list"},
                                   {pickled::dict({}), "dict"},
                                   {pickled::set({}), "set"},
                                   {pickled::frozenset({}), "frozenset"},
                                   {pickled::bytes("a"), "bytes"},
                                   {pickled::bytearray("a"), "bytearray"},
                                   {pickled::old_string("\xff"), "str"},
                                   {pickled::tuple({pickled::text("\xed\xa0\x80")}), "tuple"},
                                   {pickled::tuple({pickled::list({})}), "tuple"},
                                   {pickled::global("torch", "float32"), "torch.float32"},
                                   {pickled::persistent(kOne), "persistent id"},
                                   {pickled::object("my_net", "Key"), "my_net.Key"},
                                   {"\x82\x07", "extension 7"}};
  for (const auto& [key, name] : cases) {
    const TensorDict found = node(pickled::dict({key, kTwo}));
    const std::string shown = "<" + std::string(name) + ">";
    ASSERT_THAT(found.keys(), ElementsAre(shown));
    const TensorDict pair = found[shown];
    EXPECT_EQ(pair.info().class_name, name);
    EXPECT_THAT(pair.info().problem,
                HasSubstr(name == std::string("str")
                              ? "its key cannot be read: expected a string that is valid Unicode"
                              : "its key cannot be read: expected a string, a number, a bool, None "
                                "or a tuple of these"));
    EXPECT_TRUE(pair.contains("key")) << name;
    EXPECT_EQ(pair.value("value"), Value(2));
  }
}

TEST_F(TorchTree, KeysWithTheStringOfAnotherKeyAreNamedByTheirType) {
  const std::vector<std::pair<std::string, std::pair<const char*, const char*>>> cases = {
      {pickled::none(), {"None", "<NoneType>"}},
      {pickled::boolean(true), {"True", "<bool>"}},
      {pickled::integer(1), {"1", "<int>"}},
      {pickled::integer("36893488147419103232"), {"36893488147419103232", "<int>"}},
      {pickled::number("0.5"), {"0.5", "<float>"}},
      {pickled::tuple({kOne}), {"(1,)", "<tuple>"}}};
  for (const auto& [key, names] : cases) {
    const auto [text, shown] = names;
    const TensorDict found = node(pickled::dict({pickled::text(text), kOne, key, kTwo}));
    EXPECT_THAT(found.keys(), ElementsAre(text, shown));
    EXPECT_EQ(found.value(text), Value(1));
    EXPECT_EQ(found[shown].value("value"), Value(2));
    EXPECT_THAT(found[shown].info().problem,
                HasSubstr("its key has the same string as another key"));
  }
}

TEST_F(TorchTree, SeveralKeysOfOneUnreadableTypeAreNumbered) {
  const TensorDict found = node(pickled::dict(
      {pickled::text("<list>"), kOne, pickled::list({}), kOne, pickled::list({kOne}), kTwo}));
  EXPECT_THAT(found.keys(), ElementsAre("<list>", "<list 1>", "<list 2>"));
  EXPECT_EQ(found["<list 2>"].value("value"), Value(2));
}

TEST_F(TorchTree, IntKeysNextToAnUnreadableKeyAreTypedKeys) {
  for (const std::string& other : {pickled::list({}), pickled::text("1")}) {
    const TensorDict found = node(pickled::dict({kOne, kTwo, other, kOne}));
    EXPECT_FALSE(found.info().int_keys);
    ASSERT_EQ(found.info().typed_keys.size(), 1U);
    EXPECT_EQ(found.info().typed_keys[0], std::pair("1"s, Value(1)));
    EXPECT_EQ(found.size(), 2U);
  }
}

TEST_F(TorchTree, LongListsOfFewDifferentValuesAreRead) {
  constexpr std::size_t kLength = 1'200'000;
  const Value list = value("](" + std::string(kLength, 'N') + "e");
  EXPECT_EQ(list.get_if<Value::List>()->items.size(), kLength);
}

TEST_F(TorchTree, LongStringsThatAreRepeatedTooOftenAreRefused) {
  constexpr std::size_t kTimes = 1200;
  const std::string large = pickled::text(std::string(std::size_t{1} << 20, 'a'));
  // Stores the text in slot 0 of the memo, so that "h\0" refers to it.
  const auto repeated = [&](const std::string& item) {
    return large + "q\0"s + "0" + pickled::list(pickled::Values(kTimes, item));
  };
  // Each node that is not a value stores the path of its keys.
  const std::string path = pickled::dict(
      {large, pickled::list(pickled::Values(kTimes, pickled::global("module", "name")))});
  for (const std::string& root : {repeated("h\0"s), repeated("}h\0Ns"s), path}) {
    write(root);
    EXPECT_THAT(message_of([&] { torch_file::kFormat.open(path_, {}); }, ErrorCode::unsupported),
                HasSubstr("the pickle repeats shared objects too often"));
  }
}

TEST_F(TorchTree, ContainersInsideThemselvesAreOpaque) {
  // The memo slot 9 holds the container.
  const std::string again = "h\x09";
  for (const auto& [start, fill, name] :
       {std::tuple("]"s, again + "a", "list"),
        std::tuple("}"s, pickled::text("k") + again + "s", "dict")}) {
    const TensorDict outer = node(pickled::list({start + "q\x09" + fill, floats({1}, {1})}));
    const auto inner = std::get<TensorDict>(outer["0"].get(name == "list"s ? "0" : "k"));
    EXPECT_EQ(inner.kind(), NodeKind::opaque);
    EXPECT_EQ(inner.info().class_name, name);
    EXPECT_EQ(inner.info().problem, "it contains itself: expected a tree, found a cycle");
  }
}

TEST_F(TorchTree, OpaqueObjectsKeepTheItemsEntriesAndStateOfThePickle) {
  const std::string object = pickled::object("my_net", "Net");
  const TensorDict found = node(pickled::with_state(
      object + "(" + kOne + floats({3}, {1}) + "e" + "(" + pickled::text("k") + kTwo + "u",
      pickled::dict({pickled::text("lr"), pickled::number("0.5")})));
  EXPECT_EQ(found.info().class_name, "my_net.Net");
  EXPECT_THAT(found.keys(), ElementsAre("args", "items", "entries", "state"));
  EXPECT_EQ(found["items"].value("0"), Value(1));
  EXPECT_THAT(values<float>(found["items"].at("1")), ElementsAre(3));
  EXPECT_EQ(found.value("entries"), Value(Value::List{{"k", 2}}));
  EXPECT_EQ(found.value("state"), Value(Value::Object{{{"lr", 0.5}}}));
}

TEST_F(TorchTree, OpaqueObjectsMayHaveNamedArguments) {
  const TensorDict found = node(pickled::global("my_net", "Net") + pickled::tuple({kOne}) +
                                pickled::dict({pickled::text("n"), kTwo}) + "\x92");
  EXPECT_EQ(found.value("args"), Value(Value::Tuple{{1}}));
  EXPECT_EQ(found.value("kwargs"), Value(Value::Object{{{"n", 2}}}));
}

TEST_F(TorchTree, CallsOfWhatAnotherCallReturnsAreOpaque) {
  const TensorDict found = node(pickled::call("operator", "attrgetter", {pickled::text("system")}) +
                                pickled::tuple({kOne}) + "R");
  EXPECT_EQ(found.info().class_name, "call of a call of \"operator.attrgetter\"");
  EXPECT_EQ(found["callable"].info().class_name, "operator.attrgetter");
  EXPECT_EQ(found.value("args"), Value(Value::Tuple{{1}}));
}

TEST_F(TorchTree, ConstantsOfTorchAreValuesAndOtherGlobalsAreOpaque) {
  EXPECT_EQ(value(pickled::global("torch", "per_channel_affine")),
            Value(special(Special::Type::qscheme, "torch.per_channel_affine")));
  EXPECT_EQ(node(pickled::global("torch", "save")).info().class_name, "torch.save");
  EXPECT_EQ(node(pickled::global("os", "system")).info().class_name, "os.system");
}

class PickleFile : public testing::Test {
 protected:
  TensorDict::Item read(const std::string& value) const {
    write_bytes(folder_ / "x.pkl", pickled::whole(value));
    return read_pickle_file(os::File::open_read(folder_ / "x.pkl"));
  }
  TemporaryFolder folder_;
};

TEST_F(PickleFile, IsReadAsTheValueOfAFileOfTorchSave) {
  const auto text = read(pickled::text("a"));
  EXPECT_EQ(std::get<NonTensor>(text).value, Value("a"));
  EXPECT_EQ(describe_object(text), "a JSON value");
  const auto array = read(
      pickled::call("numpy._core.multiarray", "scalar",
                    {pickled::with_state(pickled::call("numpy", "dtype", {pickled::text("u1")}),
                                         pickled::tuple({pickled::integer(3), pickled::text("|")})),
                     pickled::bytes("a")}));
  EXPECT_EQ(mapped_bytes(std::get<Leaf>(array)), "a");
  EXPECT_EQ(describe_object(array), "a tensor of uint8 []");
  const auto list = read(pickled::list({pickled::object("my_net", "Net")}));
  EXPECT_EQ(std::get<TensorDict>(list).kind(), NodeKind::list);
  EXPECT_EQ(describe_object(list), "a container");
  EXPECT_EQ(describe_object(read(pickled::object("my_net", "Net"))), "an object of \"my_net.Net\"");
}

TEST_F(PickleFile, HasNoStorages) {
  const std::string tensor = pickled::call(
      "torch._utils", "_rebuild_tensor",
      {pickled::persistent(
           pickled::tuple({pickled::text("storage"), pickled::global("torch", "FloatStorage"),
                           pickled::text("0"), pickled::text("cpu"), kOne})),
       pickled::integer(0), pickled::tuple({kOne}), pickled::tuple({kOne})});
  EXPECT_THAT(message_of([&] { read(tensor); }, ErrorCode::corrupt),
              HasSubstr("storage: the file lacks it: expected the storage \"0\", found none"));
}

}  // namespace
}  // namespace tenfold::test
