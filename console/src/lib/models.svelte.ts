// The models of the server, read once. Every page that offers a choice of models uses this list.
import { getJson } from "./api.ts";

export interface Model {
  id: string;
}

class Models {
  all = $state<Model[]>([]);
  failure = $state<Error | null>(null);

  async load() {
    try {
      this.all = (await getJson<{ data: Model[] }>("/v1/models")).data;
      this.failure = null;
    } catch (error) {
      this.failure = error as Error;
    }
  }
}

export const models = new Models();
