// The weights of a model's folder under the names that a decoder's graph has, whatever its exporter called them:
//
//   model.layers.0...                 the usual
//   layers.0...                       saved without the output projection, from the base class
//   language_model.model.layers.0...  a multimodal model's text model; also language_model.layers.0... and
//                                     model.language_model.layers.0..., of newer exports
//   model.text_model.layers.0...      the same in the Idefics family; also text_model.layers.0...
//
// Whatever stands outside (vision towers, projectors) and what implementations compute for themselves (rotary_emb.*)
// is left out.
#pragma once

#include <string>

#include "megalith/model/config.h"
#include "megalith/model/safetensors.h"

namespace megalith {

/// Opens the weights in `folder`, and settles whether the output projection is the embedding: a tied model may have
/// either tensor, or both if they are equal. If they differ it is not tied, whatever config.json says, as transformers
/// decides it: then `config` is changed.
Weights open_weights(const std::string& folder, ModelConfig& config);

}  // namespace megalith
