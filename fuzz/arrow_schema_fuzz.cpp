// Arbitrary bytes as the types and buffers of an Arrow stream. They must be refused with an Error,
// or the single batch must be read without an access outside of its buffers.
//
// The root is a struct. For each other node, the input has a line with its format. For all nodes,
// bytes follow: the length, the offset and the number of nulls of the array, its buffers, and the
// number of its children. Buffers are at least as large as those of a correct producer.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>

#include "ingest/arrow/stream.hpp"

namespace {

struct Node {
  std::string format;
  std::string name;
  ArrowSchema schema{};
  ArrowArray array{};
  std::vector<ArrowSchema*> schemas;
  std::vector<ArrowArray*> arrays;
  std::vector<std::vector<std::byte>> memory;
  std::vector<const void*> buffers;
};

class Input {
 public:
  explicit Input(std::string_view bytes) : rest_(bytes) {}
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto value = static_cast<std::uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return value;
  }
  std::string line() {
    const std::size_t end = rest_.find('\n');
    std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    return text.substr(0, text.find('\0'));
  }

 private:
  std::string_view rest_;
};

class Tree {
 public:
  explicit Tree(Input& input) : input_(input) {}

  Node& node(int depth) {
    Node& made = nodes_.emplace_back();
    made.format = depth == 0 ? "+s" : honest(input_.line());
    made.name = "c" + std::to_string(nodes_.size());
    made.schema.format = made.format.c_str();
    made.schema.name = made.name.c_str();
    made.schema.release = [](ArrowSchema* schema) { schema->release = nullptr; };
    made.array.release = [](ArrowArray* array) { array->release = nullptr; };
    made.array.length = input_.byte() % 4;
    made.array.offset = input_.byte() % 3;
    made.array.null_count = input_.byte() % 3 - 1;
    add_buffers(made);
    for (auto& bytes : made.memory) {
      made.buffers.push_back(input_.byte() % 8 == 0 ? nullptr : bytes.data());
    }
    made.array.buffers = made.buffers.empty() ? nullptr : made.buffers.data();
    made.array.n_buffers = static_cast<std::int64_t>(made.buffers.size());
    const int children = depth < 4 ? input_.byte() % 3 : 0;
    for (int i = 0; i < children; ++i) {
      Node& child = node(depth + 1);
      made.schemas.push_back(&child.schema);
      made.arrays.push_back(&child.array);
    }
    made.schema.children = made.schemas.data();
    made.array.children = made.arrays.data();
    made.schema.n_children = made.array.n_children = children;
    if (depth > 0 && depth < 4 && input_.byte() % 8 == 1) {
      Node& values = node(depth + 1);
      made.schema.dictionary = &values.schema;
      made.array.dictionary = &values.array;
    }
    return made;
  }

 private:
  /// Limits the width of fixed-size values to 32 bytes. A consumer cannot know the size of a
  /// buffer: with wider values, a correct consumer would read beyond the end of the buffer.
  static std::string honest(std::string format) {
    return format.starts_with("w:") && format.size() > 3 ? "w:32" : format;
  }

  /// Adds buffers of 512 bytes. A correct consumer needs no more: an array has at most 5 elements,
  /// and offsets and sizes in buffers are below 16.
  void add_buffers(Node& made) {
    const bool is_large = made.format.find_first_of("UZL") != std::string::npos;
    const int count = input_.byte() % 5;
    for (int i = 0; i < count; ++i) {
      const bool is_sizes = made.format.starts_with("v") && i + 1 == count;
      auto& bytes = made.memory.emplace_back(512);
      const std::size_t step = is_large || is_sizes ? 8 : 4;
      for (std::size_t k = 0; k < 16 * step; k += step) {
        bytes[k] = static_cast<std::byte>(input_.byte() % 16);
      }
    }
  }

  Input& input_;
  std::deque<Node> nodes_;
};

struct Once {
  Node* root;
  bool given = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenfold;
  Input input(std::string_view(reinterpret_cast<const char*>(data), size));
  Tree tree(input);
  Once once{&tree.node(0)};
  ArrowArrayStream stream{};
  stream.private_data = &once;
  stream.get_schema = [](ArrowArrayStream* self, ArrowSchema* out) {
    *out = static_cast<Once*>(self->private_data)->root->schema;
    return 0;
  };
  stream.get_next = [](ArrowArrayStream* self, ArrowArray* out) {
    auto& state = *static_cast<Once*>(self->private_data);
    *out = state.given ? ArrowArray{} : state.root->array;
    state.given = true;
    return 0;
  };
  stream.release = [](ArrowArrayStream* self) { self->release = nullptr; };
  ArrowIngestOptions options;
  options.on_error = OnError::skip;
  try {
    ingest_arrow(stream, std::nullopt, options);
  } catch (const Error& error) {
    const ErrorCode code = error.code();
    if (code != ErrorCode::corrupt && code != ErrorCode::unsupported &&
        code != ErrorCode::invalid_argument) {
      std::abort();
    }
  }
  return 0;
}
