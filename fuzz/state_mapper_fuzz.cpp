// Arbitrary bytes as the file of a state mapper: JSON, or any format that stores a tree in one
// file. Opening the file and looking up states succeeds or throws an Error.

#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>

#include <tenfold/error.hpp>
#include <tenfold/state_mapper.hpp>

#include "fuzz/scratch.hpp"

namespace {

using namespace tenfold;

const std::array<Value, 8> kStates = {Value("a/x"),
                                      Value("a/nowhere/b"),
                                      Value("word"),
                                      Value(7),
                                      Value(Value::Tuple{{3, 4}}),
                                      Value(Value::Tuple{{"a", -1}}),
                                      Value("rest/inner/k"),
                                      Value(Value::Tuple{{"rest", "net", 0.5}})};

void look_up(const StateMapper& mapper) {
  for (const Value& state : kStates) {
    try {
      mapper.at(state);
    } catch (const Error&) {
    }
    try {
      mapper.value(state);
    } catch (const Error&) {
    }
  }
  mapper.rows(kStates);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::ScratchFolder scratch;
  const Path path = scratch.path() / "mapper";
  {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  }
  try {
    look_up(StateMapper::open(path));
  } catch (const Error&) {
  }
  return 0;
}
