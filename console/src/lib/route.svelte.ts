// The page that is shown, by the path: /console/chat, /console/playground, ... The fragment belongs to the page.
export const PAGES = ["chat", "playground", "nodes", "controllers", "metrics"] as const;
export type Page = (typeof PAGES)[number];

const BASE = import.meta.env.BASE_URL;

function pageOf(path: string): Page {
  const name = path.slice(BASE.length).split("/")[0];
  return PAGES.find((page) => page === name) ?? "chat";
}

class Route {
  page = $state<Page>(pageOf(location.pathname));

  constructor() {
    addEventListener("popstate", () => (this.page = pageOf(location.pathname)));
  }

  go(page: Page) {
    const href = this.href(page);
    if (location.pathname !== href) history.pushState(null, "", href);
    this.page = page;
  }

  href(page: Page) {
    return BASE + page;
  }
}

export const route = new Route();
