// Exports the rows of a data set as a stream of Arrow record batches. This program defines Arrow's
// struct itself, so that it compiles without Arrow. A program that includes Arrow's headers passes
// the stream to arrow::ImportRecordBatchReader().
#include <tenfold/arrow.hpp>

#include <cstdint>

extern "C" {
struct ArrowSchema;
struct ArrowArray;
struct ArrowArrayStream {  // as Arrow's C stream interface defines it
  int (*get_schema)(ArrowArrayStream*, ArrowSchema* out);
  int (*get_next)(ArrowArrayStream*, ArrowArray* out);
  const char* (*get_last_error)(ArrowArrayStream*);
  void (*release)(ArrowArrayStream*);
  void* private_data;
};
}

int main() {
  tenfold::TensorDict rows(tenfold::NodeInfo{.batch_size = {3}});
  rows.set("x", tenfold::Tensor::from<std::int64_t>({1, 2, 3}));
  ArrowArrayStream stream{};
  tenfold::export_arrow_stream(tenfold::Dataset(rows), &stream);
  const bool is_stream = stream.release != nullptr;
  stream.release(&stream);
  return is_stream ? 0 : 1;
}
