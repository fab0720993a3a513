// A layer's timeline: of a model whose tasks are named "layer.N.what", when each part of a layer has its inputs and
// when it is done, after the end of the layer before. How long the way from one part to the next takes, and how even
// workers are, shows there and in no sum.
#pragma once

#include <string>
#include <vector>

#include "megalith/runtime/profile_rings.h"
#include "megalith/task/task_graph.h"

namespace megalith::runtime {

/// When the first of the workers, the average one and the last one had come so far, in nanoseconds.
struct Moments {
  double first = 0, mean = 0, last = 0;
};

/// A part of a layer: medians over the layers and steps that there are records of.
struct ProfileLayerPart {
  std::string name;  // what stands behind "layer.N."
  Moments ready, end;
};

/// In the order in which parts are ready; empty if fewer than two layers have such names, or nothing was recorded of
/// them. What a layer leaves to be done beside the next one (writing its cache) is a part of that.
std::vector<ProfileLayerPart> profile_layers(const Profile& profile, const task::TaskGraph& graph);

}  // namespace megalith::runtime
