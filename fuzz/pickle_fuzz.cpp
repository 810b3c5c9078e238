// Arbitrary bytes as a pickle. They are refused with an Error, or every node ID in the graph is
// valid and every string can be read.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <tenfold/error.hpp>

#include "codecs/pickle/pickle.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenfold;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const codecs::PickleGraph graph =
        codecs::read_pickle(input, "input", {.max_nodes = 100'000, .max_depth = 100});
    const auto require = [&](std::uint32_t id) {
      if (id >= graph.nodes.size()) std::abort();
    };
    require(graph.root);
    if (graph.size_bytes > size) std::abort();
    unsigned sum = 0;
    for (const codecs::PickleNode node : graph.nodes) {
      for (const std::uint32_t id : node.items) require(id);
      for (const char byte : node.text) sum += static_cast<unsigned char>(byte);
      for (const char byte : node.name) sum += static_cast<unsigned char>(byte);
    }
    for (const codecs::PickleChange& change : graph.changes) {
      require(change.object);
      require(change.key);
      require(change.value);
    }
    volatile unsigned used = sum;
    static_cast<void>(used);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) std::abort();
  }
  return 0;
}
